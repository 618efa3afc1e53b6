"""One segment: a `.log` file and the indexes that find things in it."""

from tidelog.base.ids import Offset


class Segment:
    """The batches from `base_offset` up to the next segment."""

    base_offset: Offset
    size_bytes: int
