"""What a log holds is what its copy holds, whatever happens to the log meanwhile (P1, KIP-113)."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import Offset
from tidelog.core.partition.log_move import (
    CopyBytes,
    DropCopies,
    FinishSegment,
    LogMove,
    Pause,
    SegmentView,
    Step,
)

SLICE_BYTES = 4
REST_BYTES_MAX = 3
STEPS_MAX = 500


@dataclass
class Copying:
    """A log of bytes, one offset each, and its copy. A step reads, and writes some time later."""

    move: LogMove = field(
        default_factory=lambda: LogMove(slice_bytes=SLICE_BYTES, rest_bytes_max=REST_BYTES_MAX)
    )
    segments: list[tuple[int, bytearray]] = field(default_factory=lambda: [(0, bytearray())])
    copies: dict[int, bytearray] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    appended: int = 0

    @property
    def view(self) -> list[SegmentView]:
        return [SegmentView(Offset(base), len(data)) for base, data in self.segments]

    @property
    def end_offset(self) -> int:
        base, data = self.segments[-1]
        return base + len(data)

    # -- what happens to the log -----------------------------------------------------------------

    def append(self, count: int) -> None:
        for _ in range(count):
            self.appended += 1
            self.segments[-1][1].append(self.appended % 251)

    def roll(self) -> None:
        if self.segments[-1][1]:
            self.segments.append((self.end_offset, bytearray()))

    def cut(self, back: int) -> None:
        offset = max(self.end_offset - back, 0)
        if offset < self.segments[0][0]:
            self.segments = [(offset, bytearray())]
        else:
            self.segments = [one for one in self.segments if one[0] <= offset]
            base, data = self.segments[-1]
            del data[offset - base :]
        self.move.on_cut(self.view)

    def expire(self) -> None:
        if len(self.segments) > 1:
            del self.segments[0]

    # -- what is asked for -----------------------------------------------------------------------

    def read(self, step: Step) -> bytes | None:
        """On a thread of one directory. None: it is not there any more."""
        if not isinstance(step, CopyBytes):
            return b""
        for base, data in self.segments:
            if base == step.base_offset:
                found = bytes(data[step.position : step.position + step.size_bytes])
                return found if len(found) == step.size_bytes else None
        return None

    def perform(self, step: Step, data: bytes | None) -> None:
        """On a thread of the other directory."""
        if data is None:
            return
        match step:
            case CopyBytes(base, position):
                copy = self.copies.setdefault(base, bytearray())
                del copy[position:]
                assert len(copy) == position
                copy += data
                self.move.on_copied(step)
            case FinishSegment(base, size_bytes):
                copy = self.copies.setdefault(base, bytearray())
                del copy[size_bytes:]
                assert len(copy) == size_bytes
                self.move.on_finished(step)
            case DropCopies(bases):
                for base in bases:
                    self.copies.pop(base, None)
                self.move.on_dropped(step)
            case Pause():
                pass

    def finish(self) -> Pause:
        """Nothing happens to the log any more."""
        for _ in range(STEPS_MAX):
            step = self.move.next_step(self.view)
            if isinstance(step, Pause):
                return step
            self.perform(step, self.read(step))
        raise AssertionError("there is always something left to copy")


EVENTS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 9)),
    st.tuples(st.just("cut"), st.integers(1, 20)),
    st.tuples(st.sampled_from(["roll", "expire"]), st.just(0)),
)


@given(
    turns=st.lists(
        st.tuples(st.lists(EVENTS, max_size=3), st.lists(EVENTS, max_size=2)), max_size=40
    )
)
def test_the_copy_and_the_rest_are_the_log(
    turns: list[tuple[list[tuple[str, int]], list[tuple[str, int]]]],
) -> None:
    """M1-M3. Before each step, and between its read and its write, things happen to the log."""
    copying = Copying()
    copying.append(10)
    for before, between in turns:
        _happen(copying, before)
        step = copying.move.next_step(copying.view)
        data = copying.read(step)
        _happen(copying, between)
        copying.perform(step, data)
    pause = copying.finish()
    base, active = copying.segments[-1]
    assert pause.base_offset == base
    assert len(active) - pause.position <= REST_BYTES_MAX
    copy = copying.copies.setdefault(base, bytearray())
    del copy[pause.position :]
    copy += active[pause.position :]
    assert copying.copies == dict(copying.segments)


def _happen(copying: Copying, events: list[tuple[str, int]]) -> None:
    for name, number in events:
        match name:
            case "append":
                copying.append(number)
            case "cut":
                copying.cut(number)
            case "roll":
                copying.roll()
            case _:
                copying.expire()


def test_bytes_read_before_a_cut_do_not_count() -> None:
    """M1: what is appended in their place may be as long."""
    copying = Copying()
    copying.append(8)
    step = copying.move.next_step(copying.view)
    data = copying.read(step)
    copying.cut(6)
    copying.append(6)
    copying.perform(step, data)
    again = copying.move.next_step(copying.view)
    assert isinstance(again, CopyBytes)
    assert again.position == 0


def test_what_is_written_of_a_segment_that_was_cut_off_meanwhile_is_dropped() -> None:
    """M3: it was the first slice of that segment, so nobody had heard of its copy."""
    copying = Copying()
    copying.append(8)
    copying.roll()
    copying.append(8)
    while (step := copying.move.next_step(copying.view)) != CopyBytes(Offset(8), 0, SLICE_BYTES, 0):
        copying.perform(step, copying.read(step))
    data = copying.read(step)
    copying.cut(10)
    copying.perform(step, data)
    copying.finish()
    assert copying.copies.keys() <= dict(copying.segments).keys()


def test_how_far_the_copy_is_can_be_told() -> None:
    copying = Copying()
    copying.append(8)
    copying.roll()
    copying.append(2)
    assert copying.move.reached_offset(copying.view) == 0
    copying.finish()
    assert copying.move.reached_offset(copying.view) == 8
    assert copying.move.copied_bytes == 8
