"""The files of closed segments, kept open while they are in use; bounded."""

from tidelog.base.ports import Disk


class FileCache:
    """One per log dir. Safe to use from several threads."""

    def __init__(self, disk: Disk, *, open_files_max: int) -> None:
        raise NotImplementedError
