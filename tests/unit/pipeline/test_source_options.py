"""Options of a source: Spark's names, defaults, precedence; one sentence if one is wrong (X1)."""

import pytest

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.offsets import EARLIEST, LATEST
from tidelog.pipeline.source_options import (
    Assigned,
    AtOffset,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Matching,
    NoMatch,
    SourceOptions,
    Subscribed,
    batch_options,
    stream_options,
)

ORDERS = TopicPartition("orders", 0)
BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def batch(**options: str) -> SourceOptions:
    return batch_options({**BASE, **options})


def stream(**options: str) -> SourceOptions:
    return stream_options({**BASE, **options})


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in BASE.items() if name not in names}


def test_defaults_are_sparks() -> None:
    found = batch()
    assert found.strategy == Subscribed(("orders",))
    assert (found.start, found.end) == (AtOffset(EARLIEST), AtOffset(LATEST))
    assert found.fails_on_data_loss
    assert not found.has_headers
    assert not found.kafka.is_committed_only
    assert found.max_trigger_delay_ms == 15 * 60 * 1000
    assert stream().start == AtOffset(LATEST)


def test_as_many_as_there_can_be_are_a_number() -> None:
    """As jobs say it that want no limit."""
    assert stream(maxOffsetsPerTrigger=str(2**63 - 1)).max_offsets_per_trigger == 2**63 - 1
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger"):
        stream(maxOffsetsPerTrigger=str(2**63))


def test_letters_may_have_either_case() -> None:
    assert stream(STARTINGOFFSETS="Earliest", includeheaders="TRUE").has_headers
    assert stream(STARTINGOFFSETS="Earliest").start == AtOffset(EARLIEST)


def test_topics_are_named_matched_or_assigned() -> None:
    base = without("subscribe")
    assert batch_options({**base, "subscribe": " b, a,,b"}).strategy == Subscribed(("a", "b"))
    assert batch_options({**base, "subscribePattern": "or.*"}).strategy == Matching("or.*")
    assert batch_options({**base, "assign": '{"orders": [0]}'}).strategy == Assigned(
        frozenset({ORDERS})
    )


def test_a_time_goes_before_times_and_these_before_offsets() -> None:
    offsets = {"startingOffsets": '{"orders": {"0": 3}}'}
    times = {"startingOffsetsByTimestamp": '{"orders": {"0": 4}}'}
    time = {"startingTimestamp": "5"}
    assert stream(**offsets).start == AtOffsets(((ORDERS, 3),))
    assert stream(**offsets, **times).start == AtTimestamps(((ORDERS, 4),))
    assert stream(**offsets, **times, **time).start == AtTimestamp(5)


def test_durations_have_sparks_units() -> None:
    given = {"30s": 30_000, "2 minutes": 120_000, "15m": 900_000, "1h": 3_600_000, "250": 250}
    for text, expected_ms in given.items():
        assert stream(maxTriggerDelay=text).max_trigger_delay_ms == expected_ms


def test_who_may_begin_at_the_end_says_so() -> None:
    assert stream().no_match is NoMatch.FAIL
    assert stream(startingOffsetsByTimestampStrategy="latest").no_match is NoMatch.BEGIN_AT_END


def test_limits_of_triggers_mean_nothing_to_a_batch() -> None:
    batch(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="1", maxTriggerDelay="1s")


def test_an_option_of_somebody_else_is_ignored() -> None:
    batch(mergeSchema="true", groupIdPrefix="mine")


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
        ({"endingTimestamp": "-4"}, "endingTimestamp is '-4'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'"),
        ({"includeHeaders": "1"}, "includeHeaders is '1'"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition is 'many'"),
        ({"fetchOffset.numRetries": "x"}, "fetchOffset.numRetries is 'x'"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy is 'x'"),
        ({"startingOfsets": "earliest"}, "startingofsets is no option; startingOffsets is one"),
        ({"assign": '{"orders": [0]}'}, "assign and subscribe are both set"),
        ({"subscribe": " ,"}, "subscribe is empty"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset cannot be set"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit cannot be set"),
        ({"kafka.nonsense": "1"}, "kafka.nonsense is a setting that neither"),
        ({"kafka.fetch.max.bytes": "x"}, "kafka.fetch.max.bytes"),
        ({"kafka.isolation.level": "dirty"}, "kafka.isolation.level"),
        ({"kafka.bootstrap.servers": "nowhere"}, "kafka.bootstrap.servers"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as refusal:
        batch(**options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets cannot be set: a stream has no end"),
        ({"endingTimestamp": "5"}, "endingTimestamp cannot be set"),
        ({"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp cannot be set"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "minOffsetsPerTrigger is 5, which is more than maxOffsetsPerTrigger, 4",
        ),
    ],
)
def test_what_is_wrong_with_a_stream_is_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        stream(**options)


@pytest.mark.parametrize("missing", ["kafka.bootstrap.servers", "subscribe"])
def test_what_is_missing_is_named(missing: str) -> None:
    with pytest.raises(OptionError, match=missing.rsplit(".", maxsplit=1)[-1]):
        batch_options(without(missing))


def test_a_pattern_has_to_be_one() -> None:
    base = without("subscribe")
    for text in ("(", ""):
        with pytest.raises(OptionError, match="subscribePattern"):
            batch_options({**base, "subscribePattern": text})


def test_every_assigned_partition_has_a_place_and_no_other() -> None:
    base = {**without("subscribe"), "assign": '{"orders": [0, 1]}'}
    with pytest.raises(OptionError, match="startingOffsets says nothing of orders-1"):
        stream_options({**base, "startingOffsets": '{"orders": {"0": 3}}'})
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp has orders-2"):
        stream_options(
            {**base, "startingOffsetsByTimestamp": '{"orders": {"0": 3, "1": 3, "2": 3}}'}
        )
