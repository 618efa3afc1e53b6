"""What Prometheus is told can be read by Prometheus (O3)."""

from prometheus_client.parser import text_string_to_metric_families

from tidelog.telemetry.metrics import Family, Kind, Sample, exposition


def test_what_is_told_is_what_is_read() -> None:
    drops = Family(
        "tidelog_drops_total", Kind.COUNTER, "Drops", ("topic",), [Sample(2, ('a"\n\\b',))]
    )
    ids = Family("tidelog_ids", Kind.GAUGE, "Ids", (), [Sample(7.5)])
    read = text_string_to_metric_families(exposition([drops, ids]).decode())
    assert [(one.name, one.type, one.documentation) for one in read] == [
        ("tidelog_drops", "counter", "Drops"),
        ("tidelog_ids", "gauge", "Ids"),
    ]
    samples = [
        (sample.name, sample.labels, sample.value)
        for one in text_string_to_metric_families(exposition([drops, ids]).decode())
        for sample in one.samples
    ]
    assert samples == [
        ("tidelog_drops_total", {"topic": 'a"\n\\b'}, 2.0),
        ("tidelog_ids", {}, 7.5),
    ]


def test_family_without_samples_is_named_all_the_same() -> None:
    text = exposition([Family("tidelog_ids", Kind.GAUGE, "Ids", ("topic",), [])]).decode()
    assert "# TYPE tidelog_ids gauge" in text
