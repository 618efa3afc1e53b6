"""What applications do to their producer in odd places: in callbacks, after a fork, too large (P2).

Each of these once waited for ever, or hid one error behind another.
"""

import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from tidelog.client import Producer
from tidelog.client.application_producer import Failed, Stored
from tidelog.client.errors import RequestFailed
from tidelog.testing import Broker

PATIENCE_S = 20


@pytest.mark.parametrize("timeout_ms", [-1, 0, 100])
def test_async_refuses_a_record_that_its_queue_never_has_room_for(
    tidelog_broker: Broker, tidelog_topic: str, timeout_ms: int
) -> None:
    with Producer(
        tidelog_broker.bootstrap,
        producer_type="async",
        queue_enqueue_timeout_ms=timeout_ms,
        settings={"queue.buffering.max.kbytes": 1},
    ) as producer:
        with pytest.raises(RequestFailed, match=r"queue\.buffering\.max\.kbytes"):
            producer.send(tidelog_topic, b"x" * 5_000)
        producer.send(tidelog_topic, b"goes on")
    assert (producer.acknowledged, producer.dropped) == (1, 0)


@pytest.mark.parametrize("producer_type", ["sync", "async"])
def test_on_delivery_may_send(
    tidelog_broker: Broker, tidelog_topic: str, producer_type: str
) -> None:
    told: list[Stored | Failed] = []

    def send_another(outcome: Stored | Failed) -> None:
        told.append(outcome)
        if len(told) <= 30:
            producer.send(tidelog_topic, b"another")

    producer = Producer(
        tidelog_broker.bootstrap,
        producer_type=producer_type,
        queue_buffering_max_ms=5,
        queue_buffering_max_messages=3,
        on_delivery=send_another,
    )

    def send_some() -> None:
        for _ in range(10):
            producer.send(tidelog_topic, b"x")
        producer.close()

    sender = threading.Thread(target=send_some, daemon=True)
    sender.start()
    sender.join(PATIENCE_S)
    assert not sender.is_alive(), "a send in on_delivery waits for ever"
    assert len(told) == 40
    assert (producer.queued, producer.acknowledged) == (40, 40)


def test_everybody_is_told_though_on_delivery_raises(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    told: list[Stored | Failed] = []

    def tell(outcome: Stored | Failed) -> None:
        told.append(outcome)
        raise ValueError(f"number {len(told)}")

    producer = Producer(tidelog_broker.bootstrap, producer_type="async", on_delivery=tell)
    for _ in range(20):
        producer.send(tidelog_topic, b"x")
    with pytest.raises(ValueError, match=r"number 1$"):
        producer.close()
    assert len(told) == 20
    producer.close()


def test_error_in_the_block_is_not_hidden_by_one_of_on_delivery(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    def tell(_outcome: Stored | Failed) -> None:
        raise ValueError("told wrongly")

    producer = Producer(tidelog_broker.bootstrap, producer_type="async", on_delivery=tell)
    producer.send(tidelog_topic, b"x")
    with pytest.raises(ZeroDivisionError) as raised, producer:
        raise ZeroDivisionError
    assert "told wrongly" in "".join(raised.value.__notes__)
    assert producer.acknowledged == 1


def test_process_that_was_forked_off_is_told_to_make_a_producer_of_its_own(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    program = f"""
        import os, sys
        from tidelog.client import Producer
        from tidelog.client.errors import ClientError

        with Producer({tidelog_broker.bootstrap!r}) as producer:
            producer.send({tidelog_topic!r}, b"before")
            child = os.fork()
            if child == 0:
                send = lambda: producer.send({tidelog_topic!r}, b"x")
                for use in (send, producer.flush, producer.poll):
                    try:
                        use()
                    except ClientError as error:
                        print(error, flush=True)
                producer.close()
                os._exit(0)
            os.waitpid(child, 0)
            print(producer.send({tidelog_topic!r}, b"after").offset)
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    *refusals, offset = done.stdout.splitlines()
    assert len(refusals) == 3
    assert all("forked: make another one here" in refusal for refusal in refusals)
    assert offset == "1"
