"""Which columns a sink writes, and what it says about those that it cannot (X2)."""

import pytest

from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.sink_options import Guarantee, SinkOptions, sink_options

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"}
HEADERS = "array<struct<key:string,value:binary>>"
SOURCE = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": HEADERS,
}


def sink(columns: dict[str, str], **options: str) -> SinkOptions:
    return sink_options({**BASE, **options}, columns)


def test_what_a_source_gives_a_sink_takes() -> None:
    assert sink(SOURCE).columns == ("key", "value", "headers", "partition")


def test_the_option_topic_goes_before_the_column() -> None:
    assert "topic" not in sink(SOURCE).columns
    assert "topic" in sink_options({"kafka.bootstrap.servers": "a:1"}, SOURCE).columns


def test_times_are_kept_if_asked_for() -> None:
    assert "timestamp" in sink(SOURCE, includeTimestamp="true").columns


def test_the_best_guarantee_is_the_default() -> None:
    assert sink(SOURCE).guarantee is None
    assert sink(SOURCE, deliveryGuarantee="At-Least-Once").guarantee is Guarantee.AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"key": "string"}, {}, "no column value"),
        ({"value": "int"}, {}, "the column value is of type int but must be binary or string"),
        ({"value": "string", "key": "bigint"}, {}, "the column key is of type bigint"),
        ({"value": "string", "partition": "string"}, {}, "the column partition is of type string"),
        ({"value": "string", "headers": "map<string,string>"}, {}, "the column headers is of type"),
        ({"value": "string"}, {"includeTimestamp": "true"}, "no column timestamp"),
        ({"value": "string"}, {"includeTimestamp": "yes"}, "includeTimestamp is 'yes'"),
        ({"value": "string"}, {"deliveryGuarantee": "twice"}, "deliveryGuarantee is 'twice'"),
        ({"value": "string"}, {"transactionalIdPrefix": ""}, "transactionalIdPrefix"),
        ({"value": "string"}, {"topics": "orders"}, "topics is no option; topic is one"),
        ({"value": "string"}, {"path": "orders"}, "path cannot be written to"),
        ({"value": "string"}, {"kafka.acks": "1"}, "kafka.acks is 1, but to write exactly once"),
        ({"value": "string"}, {"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence"),
        ({"value": "string"}, {"kafka.acks": "many"}, "acks"),
    ],
)
def test_what_is_wrong_is_named(
    columns: dict[str, str], options: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        sink(columns, **options)


def test_who_does_not_mind_repetitions_may_do_without_acks() -> None:
    sink({"value": "string"}, **{"kafka.acks": "1", "deliveryGuarantee": "at-least-once"})


def test_somebody_says_where_to_write_to() -> None:
    with pytest.raises(OptionError, match="set the option topic"):
        sink_options({"kafka.bootstrap.servers": "a:1"}, {"value": "string"})
