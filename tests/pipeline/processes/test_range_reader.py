"""What a task does with a range that is not there any more (X1). No job is run here."""

from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.clients import NewRecord, create_topic, send
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import wait_until
from tidelog.base.ids import TopicPartition
from tidelog.client.admin import Admin
from tidelog.client.bootstrap import Address
from tidelog.pipeline.errors import DataLoss
from tidelog.pipeline.kafka_settings import reader_settings
from tidelog.pipeline.range_reader import RangeReader, ReadSettings
from tidelog.pipeline.ranges import OffsetRange

WITHIN_S = 60


def reader(topics: ReplicatedTopics, topic: str, *, fails_on_data_loss: bool) -> RangeReader:
    settings = ReadSettings(
        kafka=reader_settings({"kafka.bootstrap.servers": topics.bootstrap}),
        has_headers=False,
        fails_on_data_loss=fails_on_data_loss,
        read_timeout_ms=1_000,
    )
    return RangeReader(settings, OffsetRange(TopicPartition(topic, 0), 0, 3), None)


def test_a_topic_that_is_deleted_under_a_task_is_data_loss(topics: ReplicatedTopics) -> None:
    topic = topics.create()
    topics.send(topic, [NewRecord(None, b"x", 1, ())] * 3)
    assert sum(rows.num_rows for rows in reader(topics, topic, fails_on_data_loss=True)) == 3
    with Admin(topics.bootstrap) as admin:
        admin.delete_topic(topic)
        wait_until(lambda: topic not in admin.topic_names(), within_s=WITHIN_S, what="it is gone")
    with pytest.raises(DataLoss, match=f"{topic}-0 from 0 to 3: its topic does not exist any more"):
        list(reader(topics, topic, fails_on_data_loss=True))
    assert list(reader(topics, topic, fails_on_data_loss=False)) == []


def test_a_leader_of_yesterday_is_not_believed_that_records_are_gone(
    topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """It was cut off, takes itself for the leader, and has less than the one that is."""
    topic = topics.create()
    records = [NewRecord(None, b"%d" % number, 1, ()) for number in range(3)]
    topics.send(topic, records)
    with BrokerProcess(tmp_path) as cut_off:
        create_topic(cut_off.bootstrap, topic, partition_count=1, config={})
        send(cut_off.bootstrap, topic, records[:1], partition=0, settings={})
        settings = ReadSettings(
            kafka=reader_settings(
                {"kafka.bootstrap.servers": f"{cut_off.bootstrap},{topics.bootstrap}"}
            ),
            has_headers=False,
            fails_on_data_loss=False,
            read_timeout_ms=30_000,
        )
        hint = Address("127.0.0.1", cut_off.port)
        reading = RangeReader(settings, OffsetRange(TopicPartition(topic, 0), 2, 3), hint)
        assert [rows.column("value").to_pylist() for rows in reading] == [[b"2"]]
