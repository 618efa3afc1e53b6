"""Answers as tables: for a terminal with rich, for RESULTS.md as Markdown."""

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.results import Answer, Metric, Target, figure_text

COLUMN_ORDER = ["tidelog", "kafka", "floor"]
WIDTH_IN_A_FILE = 180


def print_answer(answer: Answer) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_IN_A_FILE)
    console.print(f"[bold]{answer.question}[/bold]")
    for name, value in answer.environment.items():
        console.print(f"  {name}: {value}", style="dim", highlight=False)
    console.print(f"  {answer.date}: {answer.command}", style="dim", highlight=False)
    series = series_of(answer)
    table = Table("metric", "unit", *series, "ratio or figure", "target", "verdict")
    for row in rows_of(answer):
        table.add_row(*row)
    console.print(table)
    for remark in answer.remarks:
        console.print(f"  {remark}", highlight=False)


def markdown(answer: Answer) -> str:
    header = ["metric", "unit", *series_of(answer), "ratio or figure", "target", "verdict"]
    lines = [
        f"## {answer.question}",
        "",
        f"`{answer.command}`, {answer.date}, {_where(answer)}",
        "",
        _markdown_row(header),
        _markdown_row(["---"] * len(header)),
        *(_markdown_row(row) for row in rows_of(answer)),
        "",
        *(f"- {remark}" for remark in answer.remarks),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _where(answer: Answer) -> str:
    """What differs from run to run on one machine."""
    commit = answer.environment.get("tidelog", "unknown")
    load = answer.environment.get("load average before", "unknown")
    return f"tidelog {commit}, load average before {load}"


def series_of(answer: Answer) -> list[str]:
    """Every series of the answer: systems first and in their usual order."""
    return _in_order(dict.fromkeys(name for metric in answer.metrics for name in metric.values))


def _in_order(names: Collection[str]) -> list[str]:
    usual = [name for name in COLUMN_ORDER if name in names]
    return [*usual, *(name for name in names if name not in usual)]


def rows_of(answer: Answer) -> list[list[str]]:
    """One row per metric and target; a metric without target has one row as well."""
    series = series_of(answer)
    rows: list[list[str]] = []
    for metric in answer.metrics:
        medians = [_median_text(metric, name) for name in series]
        rows.extend(
            [metric.name, metric.unit, *medians, *_judgement(metric, target)]
            for target in metric.targets or (None,)
        )
    return rows


def _median_text(metric: Metric, series: str) -> str:
    median = metric.median(series)
    if median is None:
        return "-"
    values = metric.values[series]
    if len(values) == 1:
        return figure_text(median)
    return f"{figure_text(median)} ({figure_text(min(values))} .. {figure_text(max(values))})"


def _judgement(metric: Metric, target: Target | None) -> list[str]:
    if target is None:
        return [_ratios(metric), "", ""]
    figure = metric.figure(target)
    return ["-" if figure is None else figure_text(figure), str(target), metric.verdict(target)]


def _ratios(metric: Metric) -> str:
    """Of the first series to every other, for metrics that nothing is asked of."""
    names = _in_order(metric.values)
    first = metric.median(names[0]) if names else None
    if first is None:
        return "-"
    others = [(name, metric.median(name)) for name in names[1:]]
    return ", ".join(f"{figure_text(first / other)} of {name}" for name, other in others if other)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
