"""What the shell offers when Tab is pressed on an argument that the cluster knows about."""

import typer

from tidelog.base.errors import TidelogError
from tidelog.client.admin import Admin
from tidelog.client.bootstrap import DEFAULT_BOOTSTRAP

# Whoever presses Tab waits for this.
_ANSWER_WITHIN_S = 1.0


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Names of topics that begin like what was typed; none if the cluster does not answer."""
    bootstrap = context.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        with Admin(bootstrap, timeout_s=_ANSWER_WITHIN_S) as admin:
            names = admin.topic_names()
    except TidelogError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Names of groups that begin like what was typed; none if the cluster does not answer."""
    from tidelog.client.groups import Groups  # noqa: PLC0415 - only for those who press Tab

    bootstrap = context.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        with Groups(bootstrap, timeout_s=_ANSWER_WITHIN_S) as groups:
            names = [group.group_id for group in groups.listings()]
    except TidelogError:
        return []
    return [name for name in names if name.startswith(incomplete)]
