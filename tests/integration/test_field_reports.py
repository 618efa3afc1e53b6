"""What people who run Kafka for a living broke, each as the smallest test that shows it."""

import asyncio
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop
from confluent_kafka import KafkaException

from tests.integration.conftest import StartBroker
from tests.support.batches import large_batch, payload_of, with_payload
from tests.support.broker_process import BrokerProcess
from tests.support.clients import (
    FIRST_TIMESTAMP_MS,
    create_topic,
    delete_records,
    numbered_records,
    read_partition,
    send,
)
from tests.support.command_line import objects, tidelog
from tests.support.raw_client import FetchFrom, RawClient
from tests.support.server_process import ServerFailed
from tidelog.base.clock import SystemClock
from tidelog.base.errors import ConfigError, ErrorCode
from tidelog.broker.after_read import AfterRead
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.memory import MemoryBound
from tidelog.broker.network import SocketNetwork
from tidelog.broker.server import Server, ServerLimits
from tidelog.broker.shortcuts import SHORTCUTS
from tidelog.client.errors import ClientError
from tidelog.client.reader import OffsetRange, RangeReader
from tidelog.config.listeners import Listener
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_plain_batch
from tidelog.testing import Broker

SMALLEST_SEGMENT = {"segment.bytes": "1048576"}
# Of a record batch: behind its offset, length and leader epoch.
MAGIC_POSITION = 16


class LimitedBroker(BrokerProcess):
    """A broker started from a shell that limits its open files, softly or for good."""

    def __init__(self, folder: Path, *, ulimit: str) -> None:
        super().__init__(folder)
        self._ulimit = ulimit

    def command(self) -> Sequence[str]:
        return ["sh", "-c", f'ulimit {self._ulimit} && exec "$@"', "sh", *super().command()]


def test_more_partitions_than_a_login_shell_has_open_files(tmp_path: Path) -> None:
    """The limit is usually 1,024, and a broker may raise it; the log directory went offline."""
    with LimitedBroker(tmp_path, ulimit="-S -n 128") as broker:
        create_topic(broker.bootstrap, "wide", partition_count=200, config={})
        records = numbered_records(1, value_size_bytes=10, seed="wide")
        send(broker.bootstrap, "wide", records, partition=199, settings={})
        assert "Too many open files" not in broker.log_text()


def test_a_crowd_of_connections_leaves_files_for_the_logs(tmp_path: Path) -> None:
    """They took all that the process may open, and the log directory went offline at a roll."""
    with LimitedBroker(tmp_path, ulimit="-n 128") as broker, ExitStack() as crowd:
        create_topic(broker.bootstrap, "rolled", partition_count=1, config=SMALLEST_SEGMENT)
        with RawClient(broker.port) as client:
            topic = client.topic("rolled")
            for _ in range(150):
                address = ("127.0.0.1", broker.port)
                crowd.enter_context(socket.create_connection(address, timeout=10))
            batch = large_batch(Codec.NONE, FIRST_TIMESTAMP_MS)
            codes = {client.produce(topic, batch).code for _ in range(8)}
        assert codes == {ErrorCode.NONE}
        assert "ulimit" in broker.log_text()


class SilentBroker(BrokerProcess):
    """A broker whose standard streams were closed, as some who start daemons do."""

    def command(self) -> Sequence[str]:
        return ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *super().command()]

    def is_ready(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


def test_a_broker_without_standard_streams_serves(tmp_path: Path) -> None:
    """A socket took the place of stdout, and libuv ended the process when that was closed."""
    with SilentBroker(tmp_path) as broker:
        create_topic(broker.bootstrap, "quiet", partition_count=1, config={})
        records = numbered_records(1, value_size_bytes=10, seed="quiet")
        send(broker.bootstrap, "quiet", records, partition=0, settings={})
        assert len(read_partition(broker.bootstrap, "quiet", 0)) == 1
        assert broker.stop() == 0


def test_a_damaged_record_costs_its_reader_and_nobody_else(tmp_path: Path) -> None:
    """Reading it took the log directory offline, with all partitions, each time it was back."""
    with BrokerProcess(tmp_path) as broker:
        for topic in ("damaged", "sound"):
            create_topic(broker.bootstrap, topic, partition_count=1, config={})
            records = numbered_records(10, value_size_bytes=10, seed=topic)
            send(broker.bootstrap, topic, records, partition=0, settings={"linger.ms": 0})
        log = broker.data_folder / "damaged-0" / "00000000000000000000.log"
        with log.open("r+b") as file:
            file.seek(MAGIC_POSITION)
            file.write(b"\xff")
        with RawClient(broker.port) as client:
            damaged, sound = client.topic("damaged"), client.topic("sound")
            answer = client.fetch(FetchFrom(topic=damaged), FetchFrom(topic=sound))
            codes = {topic: result.code for (topic, _), result in answer.partitions.items()}
            assert codes == {"damaged": ErrorCode.CORRUPT_MESSAGE, "sound": ErrorCode.NONE}
            assert client.produce(sound, large_batch(Codec.NONE, FIRST_TIMESTAMP_MS)).code == 0
        assert "no record batch at position 0" in broker.log_text()


def test_a_broker_whose_terminal_is_closed_stops_cleanly(tmp_path: Path) -> None:
    """It died, and the next start had to check its logs; Kafka stops."""
    with BrokerProcess(tmp_path) as broker:
        assert broker.end(signal.SIGHUP) == 0
        assert "broker.broker: stopped" in broker.log_text()


def test_a_broker_told_to_stop_again_and_again_has_stopped_cleanly(tmp_path: Path) -> None:
    """One signal too many, after all was done, and it had been killed."""
    with BrokerProcess(tmp_path) as broker:
        while broker.is_running:
            os.kill(broker.pid, signal.SIGTERM)
        assert broker.stop() == 0


def test_a_header_whose_name_is_no_text_does_not_stop_consume(tidelog_broker: Broker) -> None:
    """It was a traceback, and nothing behind that record could be printed."""
    create_topic(tidelog_broker.bootstrap, "named", partition_count=1, config={})
    with RawClient(int(tidelog_broker.address_of(1).rpartition(":")[2])) as client:
        record = Record(0, FIRST_TIMESTAMP_MS, None, b"value", (("name", b"1"),))
        batch = encode_plain_batch([record], Codec.NONE)
        renamed = with_payload(batch, payload_of(batch).replace(b"name", b"n\xffme"))
        assert client.produce(client.topic("named"), renamed).code == ErrorCode.NONE
    done = tidelog("consume", "named", "--json", "--bootstrap", tidelog_broker.bootstrap)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [record["headers"] for record in objects(done.stdout)] == [None]


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", ""],
        ["topics", "describe", ""],
        ["configs", "describe", "--topic", ""],
        ["configs", "alter", "--topic", "", "--set", "retention.ms=1"],
    ],
)
def test_a_topic_without_a_name_is_one_sentence(
    tidelog_broker: Broker, arguments: list[str]
) -> None:
    """It was a traceback."""
    done = tidelog(*arguments, "--bootstrap", tidelog_broker.bootstrap)
    assert done.stderr.decode().endswith(": a topic name must not be empty\n")
    assert done.stderr.count(b"\n") == 1
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["groups", "describe", ""], 2),
        (["groups", "reset", "", "--topic", "orders", "--to-latest", "--execute"], 2),
        (["groups", "delete-offsets", "", "--topic", "orders"], 2),
        (["groups", "delete", ""], 1),
    ],
)
def test_a_group_without_an_id_is_one_sentence(
    tidelog_broker: Broker, arguments: list[str], exit_code: int
) -> None:
    """There was no reason in it."""
    done = tidelog(*arguments, "--bootstrap", tidelog_broker.bootstrap)
    assert done.stderr.decode().endswith(": a group's id must not be empty\n")
    assert done.stderr.count(b"\n") == 1
    assert done.returncode == exit_code


def test_a_group_without_an_id_is_not_joined(tidelog_broker: Broker) -> None:
    """confluent-kafka ended the process: an assertion, and a core."""
    create_topic(tidelog_broker.bootstrap, "joined", partition_count=1, config={})
    done = tidelog("consume", "joined", "--group", "", "--bootstrap", tidelog_broker.bootstrap)
    assert done.stderr.decode().endswith(": a group's id must not be empty\n")
    assert done.returncode == 2


def test_a_transactional_id_that_is_empty_is_one_sentence(tidelog_broker: Broker) -> None:
    """It was the code alone."""
    done = tidelog("transactions", "describe", "", "--bootstrap", tidelog_broker.bootstrap)
    assert done.stderr.decode().endswith(": a transactional id must not be empty\n")
    assert done.returncode == 2


def test_a_listener_that_no_name_server_could_know_is_named(tmp_path: Path) -> None:
    """It was a traceback."""
    listeners = f"listeners=PLAINTEXT://{'a' * 64}:0"
    done = tidelog("broker", "--set", listeners, "--set", f"log.dirs={tmp_path}")
    assert done.stderr.decode().endswith(": not the name of a host\n")
    assert done.returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_to_a_full_disk_is_one_sentence(tidelog_broker: Broker) -> None:
    """It was a traceback."""
    create_topic(tidelog_broker.bootstrap, "listed", partition_count=1, config={})
    command = [sys.executable, "-P", "-m", "tidelog", "topics", "list"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*command, "--bootstrap", tidelog_broker.bootstrap],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.stderr.decode().count("\n") == 1
    assert os.strerror(errno.ENOSPC) in done.stderr.decode()
    assert done.returncode == 1


def test_a_port_that_is_taken_while_logs_are_opened_is_named() -> None:
    """It was bound before and listened on after; the broker said it listened, and did not."""
    uvloop.run(_listen_twice())


async def _listen_twice() -> None:
    first, second = _server(), _server()
    port = await first.bind(Listener("PLAINTEXT", "127.0.0.1", 0), backlog=1)
    await second.bind(Listener("PLAINTEXT", "127.0.0.1", port), backlog=1)
    await second.listen()
    with pytest.raises(ConfigError, match=r"PLAINTEXT://127\.0\.0\.1:0: Address already in use"):
        await first.listen()
    await second.drain(1)


def _server() -> Server:
    memory = MemoryBound(1)
    return Server(
        limits=ServerLimits(
            request_max_bytes=1,
            read_budget_bytes=1,
            connections_max=1,
            connections_max_per_ip=1,
            connections_max_per_ip_overrides={},
            connections_per_second_max=2**31 - 1,
            unpaced_listener=None,
            descriptor_max=1,
            idle_max_ms=1,
            slow_reader_max_ms=1,
            send_buffer_bytes=-1,
            receive_buffer_bytes=-1,
        ),
        network=SocketNetwork(asyncio.get_running_loop()),
        clock=SystemClock(),
        loop=asyncio.get_running_loop(),
        frame_memory=memory,
        request_memory=memory,
        answer_memory=memory,
        after_read=AfterRead(asyncio.get_running_loop()),
        turns=HeavyTurns(asyncio.get_running_loop(), pause_s=0),
        protocol=SHORTCUTS.protocol,
        dispatch=lambda _connection, _frame: None,
    )


def test_a_reader_goes_on_after_records_that_were_removed(tidelog_broker: Broker) -> None:
    """Retention is no reason to end; what could not be read is said."""
    create_topic(tidelog_broker.bootstrap, "shrinks", partition_count=1, config={})
    records = numbered_records(10, value_size_bytes=10, seed="shrinks")
    send(tidelog_broker.bootstrap, "shrinks", records, partition=0, settings={})
    delete_records(tidelog_broker.bootstrap, "shrinks", 0, 6)
    skipped = []
    with RangeReader(
        tidelog_broker.bootstrap,
        "shrinks",
        {0: OffsetRange(start_offset=2, end_offset=9)},
        is_following=False,
        expected_records=None,
        on_skipped=lambda partition, removed: skipped.append((partition, removed)),
    ) as reader:
        assert read_all(reader) == [6, 7, 8]
    assert skipped == [(0, OffsetRange(start_offset=2, end_offset=6))]


def test_a_reader_that_is_past_the_end_says_so(tidelog_broker: Broker) -> None:
    create_topic(tidelog_broker.bootstrap, "short", partition_count=1, config={})
    with (
        RangeReader(
            tidelog_broker.bootstrap,
            "short",
            {0: OffsetRange(start_offset=7, end_offset=None)},
            is_following=True,
            expected_records=None,
            on_skipped=lambda _partition, removed: pytest.fail(f"{removed} is not there"),
        ) as reader,
        pytest.raises(ClientError, match="out of range"),
    ):
        read_all(reader)


def read_all(reader: RangeReader) -> list[int]:
    offsets: list[int] = []
    while not reader.is_done:
        offsets += [record.offset for record in reader.read(timeout_s=5)]
    return offsets


def test_topics_are_not_created_in_a_database_that_was_removed(start_broker: StartBroker) -> None:
    """They were acknowledged, and gone after the next start."""
    broker = start_broker({})
    create_topic(broker.bootstrap, "before", partition_count=1, config={})
    [database] = broker.folder.rglob("coordination.sqlite")
    database.rename(database.with_name("elsewhere.sqlite"))
    with pytest.raises(KafkaException, match="removed or replaced"):
        create_topic(broker.bootstrap, "lost", partition_count=1, config={})
    [record] = numbered_records(1, value_size_bytes=10, seed="removed")
    send(broker.bootstrap, "before", [record], partition=0, settings={})
    database.with_name("elsewhere.sqlite").rename(database)
    create_topic(broker.bootstrap, "after", partition_count=1, config={})


def test_a_broker_whose_database_is_gone_does_not_make_topics_of_its_copies(
    start_broker: StartBroker,
) -> None:
    """It did, and other brokers of that cluster deleted theirs, which were complete."""
    broker = start_broker({})
    create_topic(broker.bootstrap, "kept", partition_count=1, config={})
    broker.stop()
    [database] = broker.folder.rglob("coordination.sqlite")
    coordination, elsewhere = database.parent, broker.folder / "elsewhere"
    shutil.move(coordination, elsewhere)
    with pytest.raises(ServerFailed, match=r"log.dirs belongs to cluster \S+, but the coordinator"):
        broker.start()
    shutil.rmtree(coordination)
    shutil.move(elsewhere, coordination)
    broker.start()
    [record] = numbered_records(1, value_size_bytes=10, seed="kept")
    send(broker.bootstrap, "kept", [record], partition=0, settings={})
