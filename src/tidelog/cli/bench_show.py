"""Results of a benchmark on a terminal: tables in the document's shape, and conclusions."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidelog.bench.document import checked_conclusions
from tidelog.bench.tables import SENTENCES, Cell, TableView, cost_summary, scenario_tables
from tidelog.cli.output import print_heading, print_line, print_table

if TYPE_CHECKING:
    from tidelog.bench.about import About
    from tidelog.bench.document import CheckedConclusion
    from tidelog.bench.measured import Results


def show_scenario(results: "Results", number: int) -> None:
    table, *_ = scenario_tables(results, number)
    print_heading(table.title)
    print_line()
    _show_table(table)
    _show_sentences(table)
    costs = cost_summary(results, number)
    if costs is not None:
        print_line()
        _show_table(costs)
    section = f"5.2.{number}"
    own = [each for each in checked_conclusions(results) if each.conclusion.section == section]
    if own:
        print_line()
        _show_conclusions(own)
    print_line()


def show_conclusion(results: "Results", about: "About") -> None:
    """What is said once, behind the scenarios."""
    summary = [each for each in checked_conclusions(results) if each.conclusion.section == "5.3"]
    if summary:
        print_heading("The document's summary")
        print_line()
        _show_conclusions(summary)
        print_line()
    for sentence in (*(f"Note: {each}." for each in results.remarks), *_first_two(about)):
        print_line(sentence)


def _first_two(about: "About") -> Iterable[str]:
    """What `sync` means has to be said beside every figure; the report has the rest."""
    return about.method[:2] if about.is_quick else about.method[:1]


def _show_table(table: TableView) -> None:
    shown = [index for index, name in enumerate(table.columns) if name not in SENTENCES]
    print_table(
        [table.columns[index].upper() for index in shown],
        [[row[index] for index in shown] for row in table.rows],
    )
    if table.note:
        print_line()
        print_line(table.note)


def _show_sentences(table: TableView) -> None:
    if not set(SENTENCES) <= set(table.columns):
        return
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        print_line()
        print_line(_row_name(cells))
        for name in SENTENCES:
            print_line(f"  {name}: {cells[name]}")


def _row_name(cells: dict[str, Cell]) -> str:
    kind = "idempotent" if cells["idempotent"] == "yes" else "not idempotent"
    return f"{cells['system']}, {cells['test']}, retries={cells['retries']}, {kind}"


def _show_conclusions(checked: "Sequence[CheckedConclusion]") -> None:
    for each in checked:
        print_line(f"{each.conclusion.section}  {each.conclusion.text}")
        width = max(map(len, each.verdicts))
        for subject, verdict in each.verdicts.items():
            print_line(f"  {subject.ljust(width)}  {verdict.holding}: {verdict.why}")
