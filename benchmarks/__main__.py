"""Run all benchmarks, one after the other, and write the answers to RESULTS.md: `make bench`.

Each script is a process of its own. Its progress goes to stderr as it runs; its table is printed
when it ends. Each answer takes the place of the script's last one in RESULTS.md (`report.py`); a
quick run shows that scripts work, and changes nothing.

Exit codes: 0 every target was met or could not be measured, 1 one was missed or a script failed.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import updated
from benchmarks.results import MET, MISSED, UNDECIDED, Answer
from benchmarks.tables import print_answer

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
SCRIPTS = (
    "start_time",
    "memory",
    "produce_batched",
    "produce_replicated",
    "one_at_a_time",
    "one_at_a_time_replicated",
    "consume",
    "failover",
    "flat_cost",
    "many_partitions",
    "groups",
    "coordinator_load",
    "transactions",
    "deduplication",
    "compaction",
    "spark_source",
    "verify",
    "spark_cores",
    "request_path",
    "fetch_path",
    "replicated_path",
)


def main() -> int:
    arguments = _parse_arguments()
    options = ["--quick"] if arguments.quick else []
    if arguments.rounds:
        options += ["--rounds", str(arguments.rounds)]
    answers = [_run(script, options) for script in arguments.scripts]
    finished = [answer for answer in answers if answer is not None]
    if finished and not arguments.quick:
        RESULTS.write_text(updated(RESULTS.read_text("utf-8"), finished, SCRIPTS), "utf-8")
        sys.stdout.write(f"The answers are in {RESULTS.relative_to(ROOT)}.\n")
    _print_summary(finished)
    return 1 if len(finished) < len(answers) or _verdicts(finished).get(MISSED) else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("scripts", nargs="*", default=SCRIPTS, help="default: all of them")
    parser.add_argument("--quick", action="store_true", help="show that the scripts work")
    parser.add_argument("--rounds", type=int, help="rounds that count")
    arguments = parser.parse_args()
    unknown = [script for script in arguments.scripts if script not in SCRIPTS]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(SCRIPTS)}")
    return arguments


def _run(script: str, options: Sequence[str]) -> Answer | None:
    command = [sys.executable, "-m", f"benchmarks.{script}", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    if not done.stdout:
        sys.stdout.write(f"{script} failed with exit code {done.returncode}\n")
        return None
    answer = Answer.from_json(json.loads(done.stdout))
    print_answer(answer)
    return answer


def _print_summary(answers: Sequence[Answer]) -> None:
    verdicts = _verdicts(answers)
    counts = ", ".join(f"{verdicts.get(name, 0)} {name}" for name in (MET, MISSED, UNDECIDED))
    sys.stdout.write(f"Targets: {counts}.\n")


def _verdicts(answers: Sequence[Answer]) -> dict[str, int]:
    verdicts: dict[str, int] = {}
    for answer in answers:
        for metric in answer.metrics:
            for target in metric.targets:
                verdict = metric.verdict(target)
                verdicts[verdict] = verdicts.get(verdict, 0) + 1
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
