"""The document's tables and conclusions are here as it has them (B1)."""

import pytest
from confluent_kafka import KafkaException, Producer

from tests.unit.bench.made_up import whole_results
from tidelog.bench.document import (
    CONCLUSIONS,
    DEATHS_SETUP,
    LATENCY_CONSUMER,
    LATENCY_PRODUCER,
    MANY_RETRIES,
    checked_conclusions,
    death_rows,
    throughput_rows,
)
from tidelog.bench.judgement import Holding
from tidelog.bench.measured import KAFKA, TIDELOG, Results, Setup


@pytest.mark.parametrize(("scenario", "count"), [(1, 12), (2, 7), (3, 9), (4, 5)])
def test_every_row_of_a_table_is_there(scenario: int, count: int) -> None:
    assert len(throughput_rows(scenario)) == count


@pytest.mark.parametrize(
    ("scenario", "setup", "tps"),
    [
        (1, Setup(-1, 1, 1, 12), 28511.3),
        (1, Setup(-1, 4, 4, 12), 16680.3),
        (1, Setup(0, 4, None, 12), 46764.2),
        (1, Setup(1, 2, None, 12), 32192.2),
        (2, Setup(-1, 4, 2, 1), 8216.9),
        (2, Setup(-1, 3, 1, 1), 8999.7),
        (3, Setup(0, 1, 1, 1), 76696),
        (3, Setup(-1, 2, 1, 1), 9739),
        (4, Setup(-1, 2, 2, 12), 22927.4),
        (4, Setup(-1, 2, 2, 4), None),
    ],
)
def test_a_figure_is_the_documents(scenario: int, setup: Setup, tps: float | None) -> None:
    assert {row.setup: row.document_tps for row in throughput_rows(scenario)}[setup] == tps


def test_deaths_are_the_documents_and_those_of_an_idempotent_client() -> None:
    cases = [
        (len(row.case.killed), row.case.retries, row.case.is_idempotent) for row in death_rows()
    ]
    assert cases == [
        (2, 0, False),
        (2, MANY_RETRIES, False),
        (2, MANY_RETRIES, True),
        (3, MANY_RETRIES, False),
        (3, MANY_RETRIES, True),
    ]
    assert [row.document.tps for row in death_rows() if row.document] == [12840, 13870, None]
    assert Setup(-1, 4, 2, 12) == DEATHS_SETUP


def test_an_idempotent_client_without_retries_is_refused_by_its_library() -> None:
    with pytest.raises(KafkaException, match="retries"):
        Producer({"bootstrap.servers": "127.0.0.1:1", "enable.idempotence": True, "retries": 0})


def test_latencies_have_the_documents_ten_columns() -> None:
    assert LATENCY_PRODUCER == (1.715, 1, 157, 3, 29)
    assert LATENCY_CONSUMER == (1.646, 1, 288, 4, 72)


def test_every_section_with_conclusions_is_there() -> None:
    sections = [each.section for each in CONCLUSIONS]
    counts = {section: sections.count(section) for section in dict.fromkeys(sections)}
    assert counts == {"5.2.1": 4, "5.2.2": 2, "5.2.3": 2, "5.2.4": 3, "5.2.5": 6, "5.3": 5}


def test_conclusions_hold_for_the_figures_they_were_drawn_from() -> None:
    found = {
        (each.conclusion.section, each.conclusion.text): each.verdicts[TIDELOG].holding
        for each in checked_conclusions(whole_results())
    }
    not_so = [words for (section, words), holding in found.items() if holding is not Holding.HOLDS]
    # Its picture of partitions has no figures, its acks=0 and 1 at one partition do not fall at
    # every number of replicas.
    assert [words for words in not_so if "partitions" not in words] == [
        "The more replicas, the lower the TPS."
    ]


def test_conclusions_without_their_scenarios_are_left_out() -> None:
    results = Results((TIDELOG,))
    results.throughput[4] = throughput_rows(4)
    assert {each.conclusion.section for each in checked_conclusions(results)} == {"5.2.4", "5.3"}


def test_every_system_gets_a_verdict() -> None:
    for each in checked_conclusions(whole_results()):
        assert set(each.verdicts) == {TIDELOG, KAFKA}
        assert all(verdict.why for verdict in each.verdicts.values())
