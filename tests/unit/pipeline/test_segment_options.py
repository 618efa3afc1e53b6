"""Options of `path`: those of a batch from brokers, refused in the same words (X6)."""

import pytest

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.offsets import EARLIEST, LATEST
from tidelog.pipeline.segment_options import SegmentOptions, segment_options
from tidelog.pipeline.source_options import (
    AtOffset,
    AtOffsets,
    AtTimestamp,
    NoMatch,
    Subscribed,
    batch_options,
    stream_options,
)

BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
ORDERS = TopicPartition("orders", 0)


def of_files(**options: str) -> SegmentOptions:
    return segment_options({"path": "/data", **options})


def test_defaults_are_those_of_a_batch() -> None:
    found = of_files()
    batch = batch_options({**BROKERS, "subscribe": "orders"})
    assert (found.start, found.end) == (batch.start, batch.end)
    assert (found.start, found.end) == (AtOffset(EARLIEST), AtOffset(LATEST))
    assert found.no_match is batch.no_match is NoMatch.FAIL
    assert found.fails_on_data_loss
    assert not found.has_headers
    assert not found.is_committed_only
    assert found.strategy is None


def test_what_brokers_take_files_take() -> None:
    found = of_files(
        subscribe="orders",
        startingTimestamp="5",
        startingOffsetsByTimestampStrategy="latest",
        endingOffsets='{"orders": {"0": 9}}',
        maxRecordsPerPartition="7",
        minPartitions="3",
    )
    assert found.strategy == Subscribed(("orders",))
    assert (found.start, found.end) == (AtTimestamp(5), AtOffsets(((ORDERS, 9),)))
    assert found.no_match is NoMatch.BEGIN_AT_END
    assert (found.max_records_per_partition, found.min_partitions) == (7, 3)


@pytest.mark.parametrize("level", ["read_committed", "READ_COMMITTED", "Read_Committed"])
def test_isolation_levels_may_have_either_case(level: str) -> None:
    name = "kafka.isolation.level"
    assert segment_options({"path": "/data", name: level}).is_committed_only
    brokers = batch_options({**BROKERS, "subscribe": "orders", name: level})
    assert brokers.kafka.is_committed_only


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, r"startingOffsets has latest \(-1\)"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, r"endingOffsets has earliest \(-2\)"),
        ({"commitGroup": "g"}, "commitGroup cannot be set"),
        ({"startingOffsets": "begin"}, "startingOffsets is 'begin'"),
        ({"startingTimestamp": "today"}, "startingTimestamp is 'today'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition is 'many'"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy is 'x'"),
        ({"startingOfsets": "earliest"}, "startingofsets is no option; startingOffsets is one"),
        ({"assign": '{"orders": [0]}'}, "assign and subscribe are both set"),
        ({"subscribe": " ,"}, "subscribe is empty"),
    ],
)
def test_what_is_wrong_is_said_in_the_same_words(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as of_files:
        segment_options({"path": "/data", "subscribe": "orders", **options})
    with pytest.raises(OptionError) as of_brokers:
        batch_options({**BROKERS, "subscribe": "orders", **options})
    assert str(of_files.value) == str(of_brokers.value)


def test_every_assigned_partition_has_a_place_and_no_other() -> None:
    options = {"assign": '{"orders": [0, 1]}', "startingOffsets": '{"orders": {"0": 3}}'}
    said = "startingOffsets says nothing of orders-1"
    for refused in (
        lambda: segment_options({"path": "/data", **options}),
        lambda: batch_options({**BROKERS, **options}),
    ):
        with pytest.raises(OptionError, match=said):
            refused()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.bootstrap.servers", "127.0.0.1:9092"),
        ("kafka.security.protocol", "SSL"),
        ("fetchOffset.numRetries", "3"),
        ("fetchOffset.retryIntervalMs", "3"),
        ("kafkaConsumer.pollTimeoutMs", "3"),
        ("groupIdPrefix", "mine"),
        ("maxOffsetsPerTrigger", "3"),
        ("minOffsetsPerTrigger", "3"),
        ("maxTriggerDelay", "3s"),
    ],
)
def test_what_would_have_no_effect_is_refused(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"{name} cannot be set: ") as refusal:
        segment_options({"path": "/data", name: value})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"minTimestamp": "5", "maxTimestamp": "4"},
            "minTimestamp is 5, which is more than maxTimestamp, 4",
        ),
        ({"minTimestamp": "today"}, "minTimestamp is 'today'"),
        ({"ignoreTornTail": "1"}, "ignoreTornTail is '1'"),
        ({"beyondHighWatermark": "no"}, "beyondHighWatermark is 'no'"),
        ({"kafka.isolation.level": "dirty"}, "kafka.isolation.level is 'dirty'"),
    ],
)
def test_what_is_wrong_with_options_of_files_is_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as refusal:
        segment_options({"path": "/data", **options})
    assert "\n" not in str(refusal.value)


def test_one_moment_is_a_time_range() -> None:
    found = of_files(minTimestamp="5", maxTimestamp="5")
    assert (found.min_timestamp_ms, found.max_timestamp_ms) == (5, 5)


def test_a_stream_does_not_read_files() -> None:
    with pytest.raises(OptionError, match="path cannot be set: files are read as a batch"):
        stream_options({"path": "/data", "subscribe": "orders"})
