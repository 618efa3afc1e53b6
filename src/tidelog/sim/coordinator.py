"""The coordinator of a simulated cluster: a tree in memory behind messages that take time.

It stands for ZooKeeper rather than for a file: clients reach it over links of the simulated
network, under the name of a machine of its own, so cutting and isolating work on it as on any
other. It is itself no process and never loses what it has acknowledged.

    client (`coordinator_client.py`)  ──Hello, Ask──▶  service ── MemoryTree
                                     ◀──Answer, Changed, Lost──

A session is lost `session_timeout_ms` after the service last heard of its client. The client counts
from when it *sent* the last thing that was answered, so it knows no later than the service acts.

What can be done to it, beside the network's faults:

    expire               end a session although its client is well
    break_connections    what is under way is lost: nobody knows which writes happened
    break_often          the same, by chance, for single requests
    slow                 every message takes longer
    go_away, come_back   nothing is answered, and no session expires meanwhile
    kill_at_write        a process dies at one of its writes, which is done or not
"""

from collections import Counter
from random import Random
from typing import NamedTuple, assert_never

from tidelog.coordination.memory import MemoryTree
from tidelog.coordination.port import CoordinatorRefused
from tidelog.sim.coordinator_client import SimulatedCoordinator
from tidelog.sim.coordinator_service_session import ServiceSession
from tidelog.sim.coordinator_wire import (
    Answer,
    Ask,
    Connection,
    Hello,
    Lost,
    ToClient,
    ToService,
)
from tidelog.sim.links import Link
from tidelog.sim.network import SimulatedNetwork
from tidelog.sim.process import Process
from tidelog.sim.world import World


class _Doom(NamedTuple):
    """The end of a process at one of its writes."""

    process: Process
    number: int
    done: bool


class SimulatedCoordinatorService:
    """See the module docstring."""

    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        *,
        host: str,
        session_timeout_ms: int,
        notices_death: bool,
    ) -> None:
        """`notices_death`: a session ends at once with its process, as on the embedded store;
        not so if the whole machine goes."""
        self.tree = MemoryTree()
        self.agenda = world.agenda
        self.session_timeout_s = session_timeout_ms / 1_000
        self._trace = world.trace
        self._network = network
        self._host = host
        self._notices_death = notices_death
        self._random: Random = world.random_for("coordinator")
        self._sessions: dict[int, ServiceSession] = {}
        self._is_away = False
        self._delay_max_s = 0.0
        self._break_probability = 0.0
        self.write_counts: Counter[str] = Counter()
        """How often each machine has written."""
        self._doomed: dict[str, _Doom] = {}
        network.host(host)

    async def connect(self, process: Process, host: str) -> SimulatedCoordinator:
        """Begin a session for `process`, which runs on the machine `host`.

        Raises CoordinatorUnavailable if there is no answer within the time of a session.
        """
        client = SimulatedCoordinator(self, process, host)
        await client.join()
        if self._notices_death:
            process.at_end(lambda: self._on_death(client.session_id, host))
        return client

    # -- faults ----------------------------------------------------------------------------------

    def expire(self, session_id: int) -> None:
        if session_id in self._sessions:
            self._end(self._sessions[session_id], "session expired by force")

    def expire_sessions_of(self, host: str) -> None:
        for session in self._sessions_of(host):
            self._end(session, "session expired by force")

    def break_connections(self, host: str) -> None:
        for session in self._sessions_of(host):
            session.connection.break_off()
        self._trace.note(self._host, "connections broken", {"host": host})

    def break_often(self, probability: float) -> None:
        """Break the connection instead of answering, with what was asked for done or not."""
        self._break_probability = probability

    def kill_at_write(self, process: Process, host: str, number: int, *, done: bool) -> None:
        """Kill `process`, which runs on `host`, at its `number`-th write from now on.

        It is not told whether that was done.
        """
        self._doomed[host] = _Doom(process, self.write_counts[host] + number, done)

    def slow(self, delay_max_s: float) -> None:
        """Messages take up to so much longer, both ways."""
        self._delay_max_s = delay_max_s

    def go_away(self) -> None:
        self._is_away = True
        for session in self._sessions.values():
            session.connection.break_off()
        self._trace.note(self._host, "coordinator away", {})

    def come_back(self) -> None:
        """Sessions get their whole time again, as from a new leader of an ensemble."""
        self._is_away = False
        for session in self._sessions.values():
            session.heard_at_s = self.agenda.now_s
        self._trace.note(self._host, "coordinator back", {})

    def heal(self) -> None:
        """All but the network's faults end."""
        self._delay_max_s = 0.0
        self._break_probability = 0.0
        if self._is_away:
            self.come_back()

    # -- messages --------------------------------------------------------------------------------

    def link_from(self, host: str) -> Link:
        return self._network.link(host, self._host)

    def link_to(self, host: str) -> Link:
        return self._network.link(self._host, host)

    def delay_s(self) -> float:
        """What a message takes beside its way."""
        return self._random.uniform(0.0, self._delay_max_s) if self._delay_max_s else 0.0

    def on_message(self, connection: Connection, message: ToService) -> None:
        self._trace.on_arrival(self.agenda.now_s, message.number, b"to coordinator")
        if self._is_away:
            return
        match message:
            case Hello(number, session_id):
                self._on_hello(connection, number, session_id)
            case Ask():
                self._on_ask(connection, message)
            case _:
                assert_never(message)

    def on_news(self, connection: Connection, message: ToClient) -> None:
        phrase = type(message).__name__.encode()
        self._trace.on_arrival(self.agenda.now_s, connection.number, phrase)

    def _on_hello(self, connection: Connection, number: int, session_id: int | None) -> None:
        if session_id is None:
            session = self.tree.join(lambda new_id: ServiceSession(self.tree, new_id, connection))
            self._sessions[session.session_id] = session
            session.heard_at_s = self.agenda.now_s
            self._watch_over(session)
        elif session_id not in self._sessions:
            connection.tell(Lost())
            return
        else:
            session = self._sessions[session_id]
            if connection.number < session.connection.number:
                return  # Overtaken by a later one.
            session.continue_on(connection)
        connection.session = session
        session.heard_at_s = self.agenda.now_s
        connection.tell(Answer(number, session.session_id, None))

    def _on_ask(self, connection: Connection, ask: Ask) -> None:
        session = connection.session
        if session is None:
            return  # The hello came while the service was away.
        if session.is_lost:
            connection.tell(Lost())
            return
        if connection is not session.connection:
            return
        session.heard_at_s = self.agenda.now_s
        if ask.is_write:
            self.write_counts[connection.host] += 1
            if self._kills(session, ask):
                return
        if not self._breaks_before():
            answer = self._answer(session, ask)
            if not self._breaks_before():
                connection.tell(answer)
                return
        connection.break_off()

    def _answer(self, session: ServiceSession, ask: Ask) -> Answer:
        try:
            return Answer(ask.number, ask.action(session), None)
        except CoordinatorRefused as refusal:
            return Answer(ask.number, None, refusal)

    def _kills(self, session: ServiceSession, ask: Ask) -> bool:
        host = session.connection.host
        doom = self._doomed.get(host)
        if doom is None or self.write_counts[host] < doom.number:
            return False
        del self._doomed[host]
        if doom.done:
            self._answer(session, ask)
        doom.process.kill()
        return True

    def _breaks_before(self) -> bool:
        probability = self._break_probability
        return bool(probability) and self._random.random() < probability

    # -- sessions --------------------------------------------------------------------------------

    def _watch_over(self, session: ServiceSession) -> None:
        """End the session if nothing is heard of it; look again when that could be."""
        if session.is_lost:
            return
        end_s = session.heard_at_s + self.session_timeout_s
        if self._is_away:
            end_s = self.agenda.now_s + self.session_timeout_s
        elif end_s <= self.agenda.now_s:
            self._end(session, "session expired")
            return
        self.agenda.call_at(end_s, self._watch_over, session)

    def end_session(self, session: ServiceSession) -> None:
        """Its client asks for that."""
        self._end(session, "session closed")

    def _end(self, session: ServiceSession, phrase: str) -> None:
        del self._sessions[session.session_id]
        self.tree.expire(session.session_id)
        fields = {"session": session.session_id, "host": session.connection.host}
        self._trace.note(self._host, phrase, fields)

    def _on_death(self, session_id: int, host: str) -> None:
        if not self._network.host(host).is_on:
            return
        after_s = self.link_from(self._host).latency_s()
        self.agenda.call_later(after_s, self._end_with_process, session_id)

    def _end_with_process(self, session_id: int) -> None:
        if session_id in self._sessions:
            self._end(self._sessions[session_id], "session ended with its process")

    def _sessions_of(self, host: str) -> list[ServiceSession]:
        return [each for each in self._sessions.values() if each.connection.host == host]
