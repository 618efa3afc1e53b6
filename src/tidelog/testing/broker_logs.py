"""What a cluster's brokers have printed, since a test began."""

from collections.abc import Sequence
from typing import Final

from tidelog.lab.broker_output import OutputTail
from tidelog.lab.folder import ClusterFolder

_LINES_SHOWN_MAX: Final = 60


class BrokerLogs:
    """The outputs of a folder's brokers; after `mark`, what comes next is told apart."""

    def __init__(self, folder: ClusterFolder, broker_ids: Sequence[int]) -> None:
        self._folder = folder
        self._starts = dict.fromkeys(broker_ids, 0)

    def text(self, broker_id: int) -> str:
        """All that a broker has printed, over all its starts."""
        path = self._folder.output_file(broker_id)
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def mark(self) -> None:
        for broker_id in self._starts:
            path = self._folder.output_file(broker_id)
            self._starts[broker_id] = path.stat().st_size if path.exists() else 0

    def since_mark(self, broker_id: int) -> list[str]:
        """Whole lines, the last of them if they are many."""
        tail = OutputTail(self._folder.output_file(broker_id), self._starts[broker_id])
        lines = tail.new_lines()
        left_out = len(lines) - _LINES_SHOWN_MAX
        if left_out <= 0:
            return lines
        return [f"... {left_out:,} lines before these", *lines[-_LINES_SHOWN_MAX:]]
