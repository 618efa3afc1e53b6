"""What documents 003 and 001 tell about failures, told again by three processes (R6, R8-R10).

Brokers are 0, 1 and 2, and so are the replicas of every topic here: AR=(0,1,2), 0 leads. Sections
of document 003 are named where a test is about one. In 3.6, ISR=(0,1): replica 2 is alive and lags,
because its broker may copy one byte per second of topics that say so (KIP-73).

    dies first   then      state                  what brings it back
    0            -         ISR=(1), 1 leads       0; or min.insync.replicas=1
    0            1         ISR=(1), nobody leads  1; or unclean election and min.insync.replicas=1
    0 and 1      -         ISR=(0,1), nobody      either, for reads; both, or min ISR 1, for writes

Processes are killed with SIGKILL: what they wrote is in the page cache and survives them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.cimpl import NewTopic

from tests.support.batches import plain_batch
from tests.support.broker_process import BrokerProcess
from tests.support.clients import CLIENT_TIMEOUT_S, Settings, StoredRecord, read_partition
from tests.support.confluent import code_of, only, plain_record, refusal
from tests.support.raw_client import FetchFrom, RawClient
from tests.support.server_process import wait_until
from tests.support.three_brokers import WAIT_TIMEOUT_S, ThreeBrokers
from tests.support.topics import unused_name
from tidelog.base.errors import ErrorCode
from tidelog.client.admin import Admin
from tidelog.client.values import TopicResource

BROKER_IDS = (0, 1, 2)
LAGGING = 2
NOBODY = -1
NO_RETRIES: Settings = {"acks": "all", "retries": 0}
# More than the lagging broker takes before it is held back.
RECORDS_TO_LAG_BEHIND = 20
BURST = 20_000
PRIMER = b"primer"


class Replicas:
    """One topic of one partition, its three replicas, and what clients see of it."""

    def __init__(self, cluster: ThreeBrokers, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic

    def broker(self, broker_id: int) -> BrokerProcess:
        return self.cluster.brokers[broker_id]

    def wait_for(self, *, leader: int, isr: Sequence[int]) -> None:
        """Return once the brokers that run agree on leader and in-sync set."""
        running = [broker for broker in self.cluster.brokers.values() if broker.is_running]

        def is_so() -> bool:
            return all(self._seen_by(broker) == (leader, tuple(isr)) for broker in running)

        try:
            wait_until(is_so, within_s=WAIT_TIMEOUT_S, what="")
        except TimeoutError:
            seen = [self._seen_by(broker) for broker in running]
            raise TimeoutError(f"leader {leader}, isr {isr} never came; seen: {seen}") from None

    def _seen_by(self, broker: BrokerProcess) -> tuple[int, tuple[int, ...]]:
        with RawClient(broker.port) as client:
            described = client.metadata({"name": self.topic, "topic_id": None})
        (partition,) = described.partitions
        return partition.leader_id, tuple(sorted(partition.isr_nodes))

    def set(self, **settings: str) -> None:
        """Change the topic's settings while it is used."""
        with Admin(self._bootstrap) as admin:
            named = {name.replace("_", "."): value for name, value in settings.items()}
            admin.alter_configs(TopicResource(self.topic), set_values=named, deleted=())

    def write(self, value: bytes, *, acks: str) -> None:
        """Send one record, which must be acknowledged, without retries of ours."""
        (error,) = self.write_all([value], acks=acks)
        if error is not None:
            raise KafkaException(error)

    def write_all(self, values: Sequence[bytes], *, acks: str) -> list[KafkaError | None]:
        """Send records, each a batch of its own, and say what became of each."""
        outcomes: list[KafkaError | None] = []
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": acks,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "message.timeout.ms": round(1_000 * CLIENT_TIMEOUT_S),
                "log_level": 0,
            }
        )
        for value in values:
            producer.produce(
                self.topic,
                value,
                partition=0,
                on_delivery=lambda error, _message: outcomes.append(error),
            )
        producer.flush(2 * CLIENT_TIMEOUT_S)
        return outcomes

    def refusal_of_writes(self) -> int:
        """The code with which a record of acks=all is refused; NO_ERROR if it is not."""
        return refusal(self._bootstrap, self.topic, plain_record(b"refused?"), NO_RETRIES)

    def read(self) -> list[bytes | None]:
        """The values that consumers see, in order; PRIMER is left out."""
        records: list[StoredRecord] = []

        def can_be_read() -> bool:
            try:
                records[:] = read_partition(self._bootstrap, self.topic, 0)
            except KafkaException as refused:
                # A new leader does not know at once how much its predecessor had committed.
                if code_of(refused) != KafkaError.OFFSET_NOT_AVAILABLE:
                    raise
                return False
            return True

        wait_until(can_be_read, within_s=WAIT_TIMEOUT_S, what="records can be read")
        return [record.value for record in records if record.value != PRIMER]

    def has_no_service(self) -> bool:
        """Whether every broker that runs refuses to read and to write."""
        return {ErrorCode.NOT_LEADER_OR_FOLLOWER} == {
            code
            for broker in self.cluster.brokers.values()
            if broker.is_running
            for code in self._answers(broker)
        }

    def _answers(self, broker: BrokerProcess) -> tuple[int, int]:
        with RawClient(broker.port) as client:
            topic = client.known_topic(self.topic)
            fetched = client.fetch(FetchFrom(topic=topic)).partitions[self.topic, 0]
            return client.produce(topic, plain_batch(), acks=-1).code, fetched.code

    def log_bytes(self, broker_id: int) -> bytes:
        folder = self.cluster.folder_of(broker_id, self.topic)
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))

    def wait_until_equal(self, *broker_ids: int) -> None:
        """Return once these replicas hold the same bytes."""
        wait_until(
            lambda: len({self.log_bytes(broker_id) for broker_id in broker_ids}) == 1,
            within_s=WAIT_TIMEOUT_S,
            what=f"the logs of brokers {broker_ids} are equal",
        )

    @property
    def _bootstrap(self) -> str:
        running = (one for one in self.cluster.brokers.values() if one.is_running)
        return ",".join(broker.bootstrap for broker in running)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    cluster = ThreeBrokers(
        tmp_path_factory.mktemp("003"),
        {
            # Who leads must not change because somebody came back, nor because a loaded machine
            # took long to do what is done while a broker is paused.
            "auto.leader.rebalance.enable": "false",
            "broker.session.timeout.ms": "60000",
            "replica.lag.time.max.ms": "60000",
        },
        broker_ids=BROKER_IDS,
    )
    cluster.brokers[LAGGING].settings |= {
        "follower.replication.throttled.rate": "1",
        "replica.fetch.max.bytes": "4096",
    }
    with cluster:
        yield cluster


@pytest.fixture
def cluster(processes: ThreeBrokers) -> ThreeBrokers:
    """Every broker runs, whatever the test before did to them."""
    for broker in processes.brokers.values():
        if broker.is_running:
            broker.resume()
    processes.start()
    return processes


def new_replicas(cluster: ThreeBrokers, settings: Mapping[str, str]) -> Replicas:
    """A topic of which all is well: 0 leads, all are in sync."""
    topic = unused_name()
    new_topic = NewTopic(topic, 1, replica_assignment=[list(BROKER_IDS)], config=dict(settings))
    admin = cluster.admin()
    only(admin.create_topics([new_topic]))
    replicas = Replicas(cluster, topic)
    replicas.wait_for(leader=0, isr=BROKER_IDS)
    return replicas


@pytest.fixture
def replicas(cluster: ThreeBrokers) -> Replicas:
    return new_replicas(cluster, {"min.insync.replicas": "2"})


@pytest.fixture
def lagging(cluster: ThreeBrokers) -> Replicas:
    """Section 3.6: AR=(0,1,2), ISR=(0,1), min.insync.replicas=2, no unclean election."""
    throttled = {"follower.replication.throttled.replicas": f"0:{LAGGING}"}
    replicas = new_replicas(cluster, {"min.insync.replicas": "2", **throttled})
    replicas.broker(LAGGING).kill()
    replicas.wait_for(leader=0, isr=(0, 1))
    values = [b"%d " % number + bytes(1_000) for number in range(RECORDS_TO_LAG_BEHIND)]
    assert set(replicas.write_all(values, acks="all")) == {None}
    replicas.broker(LAGGING).start()
    replicas.wait_for(leader=0, isr=(0, 1))
    return replicas


# -- 3.6: replica 0 dies -----------------------------------------------------------------------


@pytest.fixture
def first_died(lagging: Replicas) -> Replicas:
    lagging.broker(0).kill()
    lagging.wait_for(leader=1, isr=(1,))
    return lagging


def test_with_one_replica_in_sync_writes_are_refused_and_reads_go_on(first_died: Replicas) -> None:
    assert first_died.refusal_of_writes() == KafkaError.NOT_ENOUGH_REPLICAS
    assert len(first_died.read()) == RECORDS_TO_LAG_BEHIND


def test_writes_come_back_with_the_replica(first_died: Replicas) -> None:
    first_died.broker(0).start()
    first_died.wait_for(leader=1, isr=(0, 1))
    first_died.write(b"after", acks="all")
    assert first_died.read()[RECORDS_TO_LAG_BEHIND:] == [b"after"]


def test_writes_come_back_with_a_lower_min_insync_replicas(first_died: Replicas) -> None:
    assert first_died.refusal_of_writes() == KafkaError.NOT_ENOUGH_REPLICAS
    first_died.set(min_insync_replicas="1")
    first_died.write(b"after", acks="all")
    assert first_died.read()[RECORDS_TO_LAG_BEHIND:] == [b"after"]


# -- 3.6: replica 0 dies, then replica 1 -------------------------------------------------------


@pytest.fixture
def both_died_in_turn(first_died: Replicas) -> Replicas:
    """The last record is on replica 1 alone: nobody promised that it would be kept."""
    first_died.write(b"on replica 1 only", acks="1")
    first_died.broker(1).kill()
    first_died.wait_for(leader=NOBODY, isr=(1,))
    assert first_died.has_no_service()
    return first_died


def test_all_is_well_when_both_come_back(both_died_in_turn: Replicas) -> None:
    replicas = both_died_in_turn
    replicas.broker(0).start()
    replicas.broker(1).start()
    replicas.wait_for(leader=1, isr=(0, 1))
    replicas.write(b"after", acks="all")
    assert replicas.read()[RECORDS_TO_LAG_BEHIND:] == [b"on replica 1 only", b"after"]
    replicas.wait_until_equal(0, 1)


def test_nobody_leads_before_the_last_of_the_isr_comes_back(both_died_in_turn: Replicas) -> None:
    replicas = both_died_in_turn
    replicas.broker(0).start()
    replicas.wait_for(leader=NOBODY, isr=(1,))
    assert replicas.has_no_service()
    replicas.broker(1).start()
    replicas.wait_for(leader=1, isr=(0, 1))


def test_unclean_election_brings_reads_back_and_loses_records(both_died_in_turn: Replicas) -> None:
    replicas = both_died_in_turn
    replicas.broker(0).start()
    replicas.wait_for(leader=NOBODY, isr=(1,))
    replicas.set(unclean_leader_election_enable="true")
    replicas.wait_for(leader=0, isr=(0,))
    assert len(replicas.read()) == RECORDS_TO_LAG_BEHIND
    assert replicas.refusal_of_writes() == KafkaError.NOT_ENOUGH_REPLICAS
    replicas.set(min_insync_replicas="1")
    replicas.write(b"after", acks="all")
    replicas.broker(1).start()
    replicas.wait_for(leader=0, isr=(0, 1))
    assert replicas.read()[RECORDS_TO_LAG_BEHIND:] == [b"after"]
    replicas.wait_until_equal(0, 1)


def test_the_last_of_the_isr_alone_brings_reads_back(both_died_in_turn: Replicas) -> None:
    replicas = both_died_in_turn
    replicas.broker(1).start()
    replicas.wait_for(leader=1, isr=(1,))
    assert replicas.read()[RECORDS_TO_LAG_BEHIND:] == [b"on replica 1 only"]
    assert replicas.refusal_of_writes() == KafkaError.NOT_ENOUGH_REPLICAS
    replicas.set(min_insync_replicas="1")
    replicas.write(b"after", acks="all")


def test_when_neither_comes_back_unclean_election_takes_the_one_that_lags(
    both_died_in_turn: Replicas,
) -> None:
    replicas = both_died_in_turn
    replicas.set(unclean_leader_election_enable="true")
    replicas.wait_for(leader=LAGGING, isr=(LAGGING,))
    assert len(replicas.read()) < RECORDS_TO_LAG_BEHIND
    assert replicas.refusal_of_writes() == KafkaError.NOT_ENOUGH_REPLICAS
    replicas.set(min_insync_replicas="1")
    replicas.write(b"after", acks="all")
    assert replicas.read()[-1] == b"after"


# -- 3.6: both die at once ---------------------------------------------------------------------


@pytest.fixture
def both_died_at_once(lagging: Replicas) -> Replicas:
    """Nobody who could write it down sees one of them dead and the other alive.

    Nor does the second of them while it lives: it would be controller, and the only one in sync.
    """
    for broker_id in BROKER_IDS:
        lagging.broker(broker_id).pause()
    for broker_id in (0, 1):
        lagging.broker(broker_id).kill()
    lagging.broker(LAGGING).resume()
    lagging.wait_for(leader=NOBODY, isr=(0, 1))
    assert lagging.has_no_service()
    return lagging


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_any_of_the_isr_brings_reads_back_and_both_bring_writes(
    both_died_at_once: Replicas, first: int, second: int
) -> None:
    replicas = both_died_at_once
    replicas.broker(first).start()
    replicas.wait_for(leader=first, isr=(first,))
    assert len(replicas.read()) == RECORDS_TO_LAG_BEHIND
    assert replicas.refusal_of_writes() == KafkaError.NOT_ENOUGH_REPLICAS
    replicas.broker(second).start()
    replicas.wait_for(leader=first, isr=(0, 1))
    replicas.write(b"after", acks="all")
    assert replicas.read()[RECORDS_TO_LAG_BEHIND:] == [b"after"]
    replicas.wait_until_equal(0, 1)


def test_any_of_the_isr_and_a_lower_min_insync_replicas_bring_writes_back(
    both_died_at_once: Replicas,
) -> None:
    replicas = both_died_at_once
    replicas.broker(1).start()
    replicas.wait_for(leader=1, isr=(1,))
    replicas.set(min_insync_replicas="1")
    replicas.write(b"after", acks="all")
    assert replicas.read()[RECORDS_TO_LAG_BEHIND:] == [b"after"]


# -- 3.4: what acks promises -------------------------------------------------------------------


def acquainted_producer(replicas: Replicas, *, is_idempotent: bool) -> Producer:
    """One that needs to ask nobody any more before it sends to the leader."""
    producer = Producer(
        {
            "bootstrap.servers": replicas.cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": is_idempotent,
            "linger.ms": 0,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "log_level": 0,
        }
    )
    producer.produce(replicas.topic, PRIMER, partition=0)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    return producer


@contextmanager
def not_yet_acknowledged(replicas: Replicas, producer: Producer, value: bytes) -> Iterator[None]:
    """Send a record that its leader has on the way in, and that is acknowledged on the way out."""
    errors: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        errors.append(error)

    end = len(replicas.log_bytes(0))
    producer.produce(replicas.topic, value, partition=0, on_delivery=on_delivery)
    wait_until(
        lambda: producer.poll(0) == 0 and len(replicas.log_bytes(0)) > end,
        within_s=WAIT_TIMEOUT_S,
        what="the leader has written the record",
    )
    assert not errors
    yield
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    assert errors == [None]


def fill_parked_fetches(replicas: Replicas) -> None:
    """Answer the fetches that wait, so that nothing written next is on its way to a follower.

    A follower that is paused may find PRIMER in its socket when it goes on, and nothing else.
    """
    replicas.write(PRIMER, acks="1")


def test_acks_1_loses_what_no_follower_has_copied(replicas: Replicas) -> None:
    """3.4.1: acknowledged by the leader, which dies before anybody has pulled."""
    replicas.broker(1).pause()
    replicas.broker(2).pause()
    fill_parked_fetches(replicas)
    replicas.write(b"lost", acks="1")
    replicas.broker(0).kill()
    replicas.broker(1).resume()
    replicas.broker(2).resume()
    replicas.wait_for(leader=1, isr=(1, 2))
    assert b"lost" not in replicas.read()


def test_acks_all_keeps_what_all_followers_have_copied(replicas: Replicas) -> None:
    """3.4.2, first story: copied by all, acknowledged, the leader dies."""
    replicas.write(b"kept", acks="all")
    replicas.broker(0).kill()
    replicas.wait_for(leader=1, isr=(1, 2))
    assert replicas.read() == [b"kept"]


@pytest.mark.parametrize(("is_idempotent", "copies"), [(False, 2), (True, 1)])
def test_record_that_the_new_leader_has_copied_is_sent_again(
    replicas: Replicas, is_idempotent: bool, copies: int
) -> None:
    """3.4.2, second story: the producer was not answered, and repeats what is there already.

    An idempotent producer, which the document did not know, is recognised.
    """
    producer = acquainted_producer(replicas, is_idempotent=is_idempotent)
    replicas.broker(2).pause()
    fill_parked_fetches(replicas)
    with not_yet_acknowledged(replicas, producer, b"once?"):
        replicas.wait_until_equal(0, 1)
        replicas.broker(0).kill()
        replicas.broker(2).resume()
    replicas.wait_for(leader=1, isr=(1, 2))
    assert replicas.read() == [b"once?"] * copies
    replicas.wait_until_equal(1, 2)


def test_record_that_the_new_leader_has_not_copied_is_there_once(replicas: Replicas) -> None:
    """3.4.2, its end, and 3.5: the replica that had copied more is cut back to the new leader."""
    producer = acquainted_producer(replicas, is_idempotent=False)
    replicas.broker(1).pause()
    fill_parked_fetches(replicas)
    with not_yet_acknowledged(replicas, producer, b"once"):
        replicas.wait_until_equal(0, 2)
        replicas.broker(0).kill()
        replicas.broker(1).resume()
    replicas.wait_for(leader=1, isr=(1, 2))
    assert replicas.read() == [b"once"]
    replicas.wait_until_equal(1, 2)
    replicas.broker(0).start()
    replicas.wait_for(leader=1, isr=BROKER_IDS)
    replicas.wait_until_equal(0, 1, 2)


# -- 3.3: a burst ------------------------------------------------------------------------------


def test_burst_does_not_shrink_the_isr(replicas: Replicas) -> None:
    producer = Producer(
        {"bootstrap.servers": replicas.cluster.bootstrap, "acks": "1", "log_level": 0}
    )
    for number in range(BURST):
        producer.produce(replicas.topic, b"%d" % number, partition=0)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    replicas.wait_for(leader=0, isr=BROKER_IDS)
    replicas.wait_until_equal(0, 1, 2)
    log = replicas.broker(0).log_text()
    assert not [line for line in log.splitlines() if "isr" in line and replicas.topic in line]


# -- 001: followers and leaders that fail ------------------------------------------------------


def test_follower_that_failed_leaves_the_isr_and_comes_back_to_it(replicas: Replicas) -> None:
    replicas.write(b"before", acks="all")
    replicas.broker(1).kill()
    replicas.wait_for(leader=0, isr=(0, 2))
    replicas.write(b"meanwhile", acks="all")
    replicas.broker(1).start()
    replicas.wait_for(leader=0, isr=BROKER_IDS)
    assert replicas.read() == [b"before", b"meanwhile"]
    replicas.wait_until_equal(0, 1, 2)


def test_leader_that_failed_is_succeeded_and_its_lone_records_are_cut(replicas: Replicas) -> None:
    """001: the first of the ISR leads, and record 8 of the drawing, which it has not, is lost."""
    replicas.write(b"7", acks="all")
    replicas.broker(1).pause()
    replicas.broker(2).pause()
    fill_parked_fetches(replicas)
    replicas.write(b"8", acks="1")
    replicas.broker(0).kill()
    replicas.broker(1).resume()
    replicas.broker(2).resume()
    replicas.wait_for(leader=1, isr=(1, 2))
    replicas.write(b"another 8", acks="all")
    replicas.broker(0).start()
    replicas.wait_for(leader=1, isr=BROKER_IDS)
    assert replicas.read() == [b"7", b"another 8"]
    replicas.wait_until_equal(0, 1, 2)
