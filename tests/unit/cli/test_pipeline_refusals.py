"""What pipelines are not begun with: said in one line that names the option, without Spark."""

import pytest

from tidelog.cli import app

CHECKPOINT = ["--checkpoint", "/nowhere"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dedup", "orders", "orders", "--id", "key"], "TARGET is orders, which is the TOPIC"),
        (["aggregate", "orders", "orders"], "TARGET is orders, which is the TOPIC"),
        (["aggregate", "orders", "counts", "--window", "0s"], "--window is '0s' but must be more"),
        (["aggregate", "orders", "counts", "--slide", "0s"], "--slide is '0s' but must be more"),
        (["aggregate", "orders", "counts", "--slide", "2m"], "no more than --window, '1m'"),
        (["aggregate", "orders", "counts", "--percentiles", "50,99,50"], "has one of them twice"),
        (["aggregate", "orders", "counts", "--percentiles", "100,99.99999"], "of them twice"),
        (
            ["aggregate", "orders", "rows", "--to", "parquet", "--guarantee", "exactly-once"],
            "--guarantee is of what is written to a topic",
        ),
        (["archive", "orders", "lake", "--check", "--group", "lag"], "--group is told how far"),
        (["archive", "orders", "lake", "--check", "--compact"], "cannot be asked for at once"),
        (
            ["replay", "lake", "orders", "--from-offset", "9", "--to-offset", "9"],
            "--to-offset is not behind --from-offset",
        ),
        (
            ["replay", "lake", "orders", "--from-time", "9", "--to-time", "3"],
            "--to-time is not behind --from-time",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["pipeline", *arguments, *CHECKPOINT]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
