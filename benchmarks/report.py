"""RESULTS.md: a section for each script, and the targets of all of them in one table.

A full run of all scripts takes an hour, so a run of some of them replaces their sections and leaves
the others as they are. Every section says when it was measured, of which commit, and how busy the
machine was before; systems that are compared are always in one section, and so of one run.

The file itself is what is known of earlier runs: the table of targets is put together from the
tables of the sections. Nothing else is kept anywhere.
"""

import re
from collections.abc import Iterable, Sequence

from benchmarks.results import Answer
from benchmarks.tables import markdown

INTRODUCTION = """# Results

Written by `make bench`; do not edit. How it is measured: `benchmarks/harness.py`. In short: all
systems run side by side on one machine and are measured in turns, in an order that changes every
round, after rounds of warming up; figures are the median of the rounds that count, with the
smallest and the largest in parentheses. `kafka` is Apache Kafka with the flags and the heap of its
own start script and no log output; `floor` is what nothing can beat and is explained in each
script. Sections may be of different runs: each says when it was measured and of which commit.
"""
OF_THE_SECTION = ("tidelog", "load average before")
GENERATED = ("Environment", "Targets")
SECTION = re.compile(r"^## (?=\S)", re.MULTILINE)
SCRIPT = re.compile(r"^`python -m benchmarks\.(\w+)", re.MULTILINE)


def updated(report: str, answers: Sequence[Answer], scripts: Sequence[str]) -> str:
    """`report` with sections of `answers` in place of earlier ones, in the order of `scripts`."""
    assert answers
    sections = {script_of(section): section for section in _sections(report)}
    for answer in answers:
        sections[answer.script] = markdown(answer)
    ordered = [sections[script] for script in scripts if script in sections]
    return "\n".join(
        [INTRODUCTION, _environment(answers[-1]), _targets(ordered), *(ordered)],
    )


def script_of(section: str) -> str:
    """Which script a section is the answer of; empty if it is of none."""
    found = SCRIPT.search(section)
    return found[1] if found else ""


def _sections(report: str) -> list[str]:
    parts = SECTION.split(report)[1:]
    return [f"## {part.rstrip()}\n" for part in parts if not part.startswith(GENERATED)]


def _environment(answer: Answer) -> str:
    shown = [
        f"- {name}: {value}"
        for name, value in answer.environment.items()
        if name not in OF_THE_SECTION
    ]
    return "\n".join(["## Environment", "", *shown, ""])


def _targets(sections: Iterable[str]) -> str:
    header = [
        "## Targets",
        "",
        "| target | metric | figure | verdict |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*header, *(row for section in sections for row in _target_rows(section)), ""])


def _target_rows(section: str) -> list[str]:
    """The rows of a section's table that have a target; its last three columns are about that."""
    rows = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("| ") or cells[-1] in ("", "verdict") or set(cells[-1]) == {"-"}:
            continue
        *_, figure, target, verdict = cells
        rows.append(f"| {target} | {cells[0]} | {figure} | {verdict} |")
    return rows
