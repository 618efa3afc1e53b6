"""`--report FILE.html` of the lab: where it goes, and what it says besides the outcome."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.lab_choice import LabChoice
from tidelog.lab.errors import LabError

if TYPE_CHECKING:
    from tidelog.lab.faults import Outcome

ReportOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE.html", help="Write verdict, time line and faults to this file."),
]


def require_writable(path: Path | None) -> None:
    """Refuse before the run what would be in vain after it."""
    if path is None:
        return
    if path.is_dir():
        raise ConfigError(f"--report is {path}, which is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--report is {path}, but there is no folder {path.absolute().parent}")


def write_report(outcome: "Outcome", choice: LabChoice) -> None:
    """To the file that was asked for, if any was."""
    from tidelog.lab.machine import describe_machine  # noqa: PLC0415 - after the options
    from tidelog.lab.report import About, report_html  # noqa: PLC0415

    if choice.report is None:
        return
    about = About(
        title=_title(choice),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        command=choice.as_command(),
        seed=choice.seed,
        schedule=choice.schedule,
        setting=choice.as_facts(),
        machine=describe_machine(),
    )
    try:
        choice.report.write_text(report_html(outcome, about), "utf-8")
    except OSError as error:
        raise LabError(f"{choice.report} cannot be written: {error.strerror}") from error


def _title(choice: LabChoice) -> str:
    if not choice.schedule:
        return "Faults of every kind"
    return f"Faults: {'; '.join(' '.join(choice.subject).splitlines())}"
