"""What `tidelog lab pipeline` says of its outcome, and docs/cli.md of that (X2, B3)."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import tidelog
from tidelog.cli.lab_folder import LabFolder
from tidelog.cli.lab_pipeline import figures, show_outcome
from tidelog.lab.exactly_once_verdict import TransformVerdict
from tidelog.lab.pipeline_schedule import Victim

if TYPE_CHECKING:
    from tidelog.lab.pipeline_run import PipelineOutcome

PAGE: Final = Path(tidelog.__file__).resolve().parents[2] / "docs" / "cli.md"
COMMAND: Final = "tidelog lab pipeline --job copy --records 200000 --kills 20 --seed 1"
KILLED: Final = Counter(
    {Victim.DRIVER: 5, Victim.JVM: 5, Victim.WORKER: 10, Victim.BROKER: 5},
)


def outcome_of(verdicts: list[TransformVerdict]) -> "PipelineOutcome":
    module = pytest.importorskip("tidelog.lab.pipeline_run", exc_type=ImportError)
    outcome: PipelineOutcome = module.PipelineOutcome(
        verdicts=verdicts, took_s=406.4, started=11, killed=KILLED, amid_outages=3
    )
    return outcome


def verdict(partition: int, *, found: int, lost: int = 0, repeated: int = 0) -> TransformVerdict:
    return TransformVerdict(
        partition=partition,
        expected=50_000,
        found=found,
        lost=lost,
        repeated=repeated,
        reordered=0,
        unexpected=0,
        examples=(),
    )


def test_what_is_shown_is_what_the_page_shows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = outcome_of([verdict(each, found=50_000) for each in range(4)])
    show_outcome(outcome, COMMAND, LabFolder(tmp_path, is_kept=True))
    assert f"```\n$ tidelog lab pipeline --seed 1\n{capsys.readouterr().out}```" in PAGE.read_text(
        "utf-8"
    )


def test_figures_are_of_all_partitions() -> None:
    verdicts = [verdict(0, found=50_000, lost=2, repeated=2), verdict(1, found=49_999, lost=1)]
    assert figures(outcome_of(verdicts)) == {
        "started": 11,
        "job_kills": {"driver": 5, "JVM of the driver": 5, "Python worker": 10},
        "broker_kills": 5,
        "job_kills_amid_outages": 3,
        "found": 99_999,
        "lost": 3,
        "repeated": 2,
        "reordered": 0,
        "unexpected": 0,
    }
