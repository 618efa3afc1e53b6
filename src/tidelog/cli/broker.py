"""`tidelog broker`: one broker in this process, for servers and containers.

What runs is `serve.py`. This is what typer shows in the help, and what complains about arguments
that `serve.parse` did not understand.
"""

from pathlib import Path
from typing import Annotated

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli import serve
from tidelog.cli.options import Panel, SetOption


def register(app: typer.Typer) -> None:
    app.command("broker", rich_help_panel=Panel.SERVER)(run)


def run(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Properties file with Kafka's names.")
    ] = None,
    assignments: SetOption = [],  # noqa: B006 - typer copies it
) -> int:
    """Run one broker in the foreground, as a server does.

    Prints one line when it is ready. SIGTERM or Ctrl-C stops it cleanly.
    """
    if config is None and not assignments:
        # Kafka's defaults alone would put the data into /tmp.
        raise ConfigError("give it a properties file with --config, or settings with --set")
    return serve.run(serve.BrokerArguments(config, tuple(assignments)))
