"""What goes wrong with an archive, in words for whoever runs it."""

from tidelog.pipeline.errors import PipelineError


class ArchiveError(PipelineError):
    """An archive cannot be read or written."""


class ArchiveTaken(ArchiveError):
    """Somebody else has begun to write to the archive. What we have not committed is void."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"another run has begun to write to the archive {root}, and this one has ended: only "
            "one may write at a time"
        )
