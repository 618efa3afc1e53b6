"""`tidelog pipeline`: jobs on Spark over topics, each one command.

Spark, pyarrow and what uses them are imported when a job starts, and not for help.
"""

import typer

from tidelog.cli import (
    pipeline_aggregate,
    pipeline_archive,
    pipeline_dedup,
    pipeline_replay,
    pipeline_verify,
)
from tidelog.cli.options import Panel


def register(app: typer.Typer) -> None:
    pipeline = typer.Typer(
        no_args_is_help=True, help="De-duplicate, archive, replay, count, verify."
    )
    pipeline.command("dedup")(pipeline_dedup.run)
    pipeline.command("archive")(pipeline_archive.run)
    pipeline.command("replay")(pipeline_replay.run)
    pipeline.command("aggregate")(pipeline_aggregate.run)
    pipeline.command("verify")(pipeline_verify.run)
    app.add_typer(pipeline, name="pipeline", rich_help_panel=Panel.RECORDS)
