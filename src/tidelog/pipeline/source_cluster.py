"""What a source asks its cluster: which partitions there are, and where to begin and to end.

Asked by the driver, a few times for each micro-batch; tasks only read. A broker that is just
restarting is asked again (`fetchOffset.numRetries`, `fetchOffset.retryIntervalMs`).
"""

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, assert_never

from tidelog.base.ids import TopicPartition
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError, RequestFailed
from tidelog.client.topic_offsets import REFUSED_CONNECTION, TopicOffsets
from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.notices import warn
from tidelog.pipeline.offsets import EARLIEST, LATEST, Offsets, text_of
from tidelog.pipeline.source_options import (
    Assigned,
    AtOffset,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Matching,
    NoMatch,
    Place,
    SourceOptions,
    Subscribed,
    option_of,
    require_equal_partitions,
)

_ASKED_WITHIN_S: Final = 10.0

T = TypeVar("T")


class SourceCluster:
    """The cluster of one source. Every call raises PipelineError or ClientError."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._offsets = TopicOffsets(
            options.kafka.for_client(),
            is_committed_only=options.kafka.is_committed_only,
            timeout_s=_ASKED_WITHIN_S,
        )

    def partitions(self) -> frozenset[TopicPartition]:
        """What there is to read now."""
        match self._options.strategy:
            case Assigned(partitions):
                topics = {each.topic for each in partitions}
                there = self._insist(lambda: self._offsets.partitions_of(topics))
                if missing := partitions - there:
                    raise OptionError(f"assign has {text_of(missing)}, which does not exist")
                return partitions
            case Subscribed(topics):
                return self._insist(lambda: self._offsets.partitions_of(topics))
            case Matching(pattern):
                return self._insist(lambda: self._offsets.partitions_matching(pattern))

    def leaders(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, Address]:
        topics = {each.topic for each in partitions}
        return self._insist(lambda: self._offsets.leaders_of(topics))

    def starts(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return self._insist(lambda: self._offsets.starts(partitions))

    def ends(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return self._insist(lambda: self._offsets.ends(partitions))

    def ends_behind(self, begun: Offsets) -> dict[TopicPartition, int]:
        """Of what there is now. A log that is gone, or ends before `begun`, is asked for again.

        A broker that has just started or become its leader may not know better yet.
        """
        retries = self._options.fetch_retries
        while True:
            ends = self.ends(self.partitions())
            if retries == 0 or all(ends.get(each, -1) >= at for each, at in begun.items()):
                return ends
            retries -= 1
            time.sleep(self._options.fetch_retry_interval_ms / 1000)

    def bounds(
        self, partitions: frozenset[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where a batch begins and where it ends. Raises OptionError if the end comes first."""
        start = self.beginning(partitions)
        end = self._that_are_there(self.ending(partitions))
        for each in sorted(partitions):
            if start[each] > end[each]:
                raise OptionError(
                    f"{option_of('starting', self._options.start)} begins {each} at {start[each]}, "
                    f"behind where {option_of('ending', self._options.end)} ends it, {end[each]}"
                )
        return start, end

    def _that_are_there(self, end: Offsets) -> dict[TopicPartition, int]:
        """A task would wait for records that are not, until it gives up."""
        if not isinstance(self._options.end, AtOffsets):
            return dict(end)
        there = self.ends_behind(end)
        if beyond := [each for each in sorted(end) if end[each] > there.get(each, 0)]:
            each = beyond[0]
            what = f"endingOffsets has {end[each]} for {each}, which ends at {there.get(each, 0)}"
            if self._options.fails_on_data_loss:
                raise OptionError(what)
            warn(f"records were missed: {what}")
        return {each: min(offset, there.get(each, 0)) for each, offset in end.items()}

    def beginning(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the options say to begin."""
        return self._resolved("starting", self._options.start, partitions, self._no_start)

    def ending(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the options say to end, which is behind the last of them."""
        return self._resolved("ending", self._options.end, partitions, lambda _: None)

    def _resolved(
        self,
        which: str,
        place: Place,
        partitions: frozenset[TopicPartition],
        no_match: Callable[[frozenset[TopicPartition]], None],
    ) -> dict[TopicPartition, int]:
        match place:
            case AtOffset(offset):
                return self._places(dict.fromkeys(partitions, offset))
            case AtOffsets(offsets):
                given = dict(offsets)
                require_equal_partitions(option_of(which, place), partitions, given)
                return self._places(given)
            case AtTimestamp(timestamp_ms):
                return self._at(dict.fromkeys(partitions, timestamp_ms), no_match)
            case AtTimestamps(timestamps_ms):
                given = dict(timestamps_ms)
                require_equal_partitions(option_of(which, place), partitions, given)
                return self._at(given, no_match)
            case _:
                assert_never(place)

    def _places(self, given: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        earliest = frozenset(each for each, offset in given.items() if offset == EARLIEST)
        latest = frozenset(each for each, offset in given.items() if offset == LATEST)
        return {**given, **self.starts(earliest), **self.ends(latest)}

    def _at(
        self,
        timestamps_ms: Mapping[TopicPartition, int],
        no_match: Callable[[frozenset[TopicPartition]], None],
    ) -> dict[TopicPartition, int]:
        found = self._insist(lambda: self._offsets.at(timestamps_ms))
        unmatched = frozenset(each for each, offset in found.items() if offset is None)
        if unmatched:
            no_match(unmatched)
        matched = {each: offset for each, offset in found.items() if offset is not None}
        return {**matched, **self.ends(unmatched)}

    def _no_start(self, partitions: frozenset[TopicPartition]) -> None:
        if self._options.no_match is NoMatch.FAIL:
            raise PipelineError(
                f"{text_of(partitions)} has no record as young as the timestamp to begin at; "
                "startingOffsetsByTimestampStrategy=latest begins at the end there"
            )

    def _insist(self, ask: Callable[[], T]) -> T:
        retries = self._options.fetch_retries
        while True:
            try:
                return ask()
            except ClientError as error:
                if retries == 0 or not _may_pass(error):
                    raise
            retries -= 1
            time.sleep(self._options.fetch_retry_interval_ms / 1000)


def _may_pass(error: ClientError) -> bool:
    if not isinstance(error, RequestFailed):
        return True
    return not error.is_unknown_topic and error.code_name not in REFUSED_CONNECTION
