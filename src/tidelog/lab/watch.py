"""What becomes of the brokers in a data folder, for whoever stays to see it.

Of a broker that the watcher started, the end is known in full: it is a child. One that was started
again by somebody else is found through the state file, and of its end only what it left on disk is
known: a broker that stopped cleanly leaves Kafka's mark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from signal import SIGKILL
from typing import Final

from tidelog.lab.broker_output import OutputTail, is_important, last_lines
from tidelog.lab.errors import exit_text
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.running import forget_brokers, running_brokers
from tidelog.lab.starting import StartedBroker
from tidelog.lab.state import BrokerState, read_state

_CLEAN_SHUTDOWN_MARK: Final = ".kafka_cleanshutdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEnded:
    """A broker ended, by itself or because somebody told it to. `how` says it in words."""

    broker_id: int
    how: str
    is_clean: bool
    last_lines: tuple[str, ...]
    running_count: int


@dataclass(frozen=True, slots=True)
class BrokerStartedAgain:
    """Somebody has started a broker of this folder again."""

    broker: BrokerState
    running_count: int


News = BrokerEnded | BrokerStartedAgain


class ClusterWatch:
    """Brokers that run in one folder; `look` from time to time."""

    def __init__(self, folder: ClusterFolder, started: Sequence[StartedBroker]) -> None:
        self._folder = folder
        self._children = {broker.state.process: broker.child for broker in started}
        self._known = {broker.state.id: broker.state for broker in started}
        self._running = set(self._known)
        # From where they began: what they said before they were ready is of interest too.
        self._outputs = {
            broker.state.id: OutputTail(folder.output_file(broker.state.id), broker.output_start)
            for broker in started
        }
        self._output_starts = {broker.state.id: broker.output_start for broker in started}

    @property
    def brokers(self) -> tuple[BrokerState, ...]:
        """All of them, as they were last started."""
        return tuple(self._known.values())

    def look(self) -> list[News]:
        """What has happened since the last look."""
        news: list[News] = []
        for broker in read_state(self._folder.state_file):
            if broker.id in self._known and broker.process != self._known[broker.id].process:
                self._known[broker.id] = broker
                self._running.add(broker.id)
                news.append(BrokerStartedAgain(broker, len(self._running)))
        for broker_id in sorted(self._running):
            if not self._known[broker_id].is_alive:
                self._running.remove(broker_id)
                news.append(self._end_of(self._known[broker_id]))
        return news

    def important_lines(self) -> list[tuple[int, str]]:
        """What brokers, by number, have said since the last call that a person should see."""
        return [
            (broker_id, line)
            for broker_id, output in self._outputs.items()
            for line in output.new_lines()
            if is_important(line)
        ]

    def is_over(self) -> bool:
        """Whether no broker runs and none is being started; it is then forgotten that any did."""
        if self._running:
            return False
        with self._folder.locked():
            if running_brokers(self._folder):
                return False  # Somebody who held the lock has started one again.
            forget_brokers(self._folder)
            return True

    def _end_of(self, broker: BrokerState) -> BrokerEnded:
        child = self._children.get(broker.process)
        # It has ended: it is not among the processes that run.
        exit_code = None if child is None else child.wait()
        mark = self._folder.log_dir(broker.id) / _CLEAN_SHUTDOWN_MARK
        is_clean = mark.exists() if exit_code is None else exit_code == 0
        if is_clean:
            how = "was stopped"
        else:
            how = "is gone" if exit_code is None else exit_text(exit_code)
        return BrokerEnded(
            broker_id=broker.id,
            how=how,
            is_clean=is_clean,
            running_count=len(self._running),
            # Whoever is stopped or killed has nothing to say about it.
            last_lines=()
            if is_clean or exit_code in {None, -SIGKILL}
            else self._last_lines(broker.id),
        )

    def _last_lines(self, broker_id: int) -> tuple[str, ...]:
        output_file = self._folder.output_file(broker_id)
        return last_lines(output_file, from_position=self._output_starts[broker_id])
