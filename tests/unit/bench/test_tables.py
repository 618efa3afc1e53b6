"""Tables have the document's shape, with its figures beside what was measured (B1)."""

from tests.unit.bench.made_up import disk, interruption, whole_results
from tidelog.bench.measured import TIDELOG, Results
from tidelog.bench.tables import (
    cost_summary,
    disk_text,
    errors_text,
    scenario_tables,
)


def test_the_first_table_has_the_documents_columns_and_ours() -> None:
    table, costs = scenario_tables(whole_results(), 1)
    assert table.columns == (
        *("acks", "replicas", "min.insync.replicas", "retries", "document TPS"),
        *("tidelog TPS", "min .. max", "kafka TPS", "min .. max", "tidelog / kafka"),
    )
    assert table.rows[0] == [
        *(-1, 1, "1", 0, "28,511.3"),
        *("28,511", "28,226 .. 28,796", "14,256", "14,113 .. 14,398", "2.00x (2.00 .. 2.00)"),
    ]
    assert table.rows[6][2] == "N/A"
    assert len(costs.rows) == 12
    assert all(len(row) == len(costs.columns) for row in costs.rows)


def test_shapes_differ_by_scenario() -> None:
    results = whole_results()
    assert scenario_tables(results, 2)[0].columns[:2] == ("replicas", "min.insync.replicas")
    assert scenario_tables(results, 3)[0].columns[:2] == ("replicas", "acks")
    assert scenario_tables(results, 4)[0].columns[0] == "partitions"


def test_a_system_alone_has_no_ratios() -> None:
    results = whole_results()
    alone = Results((TIDELOG,), throughput=results.throughput, latency=results.latency)
    for number in (1, 6):
        for table in scenario_tables(alone, number):
            assert not any("kafka" in column or column == "ratio" for column in table.columns)


def test_deaths_have_the_document_and_both_systems_in_each_row() -> None:
    (table,) = scenario_tables(whole_results(), 5)
    assert [row[3] for row in table.rows[:3]] == ["document", "tidelog", "kafka"]
    assert table.rows[0][4] == "12,840"
    assert table.rows[1][4] == "6,575"  # Of its slices of time, which are all alike here.
    assert len(table.rows) == 3 + 2 * 5
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_latencies_are_in_the_documents_ten_columns() -> None:
    table, _ = scenario_tables(whole_results(), 6)
    assert len(table.columns) == 11
    assert table.rows[0][:6] == ["document", "1.715", "1", "157", "3", "29"]
    assert [row[0] for row in table.rows] == [
        *("document", "tidelog", "tidelog, min .. max", "kafka", "kafka, min .. max"),
        "tidelog / kafka",
    ]


def test_costs_are_summed_up_but_for_brokers_that_die() -> None:
    results = whole_results()
    summary = cost_summary(results, 1)
    assert summary is not None
    assert summary.rows[0] == ["brokers' CPU us/record", "20.0", "20.0", "1.00x (1.00 .. 1.00)"]
    assert cost_summary(results, 6) is not None
    assert cost_summary(results, 5) is None


def test_what_reached_the_disk_is_said_in_words() -> None:
    assert disk_text([disk(), disk(failed=3, failed_but_stored=1)]) == (
        "consistent (2,000 acknowledged, 0 of them lost; 3 failed, 1 of them stored; 0 duplicates; "
        "replicas in sync are equal)"
    )
    assert disk_text([disk(lost=1)]).startswith("NOT consistent (1,000 acknowledged, 1 of them")


def test_errors_told_are_not_those_retried() -> None:
    rounds = [
        interruption(failures={"NETWORK_EXCEPTION": 2}),
        interruption(retried={"NOT_ENOUGH_REPLICAS": 1_200}),
    ]
    assert errors_text(rounds) == (
        "told to the sender: NETWORK_EXCEPTION 2; retried: NOT_ENOUGH_REPLICAS 1,200"
    )
    assert errors_text([interruption()]) == "none"
