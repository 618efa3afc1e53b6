"""The application against real brokers: one, and three of which one is lost."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from orders.pricing import Pricing, invoice

from tidelog.testing import Broker, Cluster

WITHIN_S = 30.0


@contextmanager
def running(bootstrap: str, orders: str, invoices: str) -> Iterator[Pricing]:
    worker = Pricing(bootstrap, orders=orders, invoices=invoices, instance="worker-1")
    try:
        yield worker
    finally:
        worker.close()


def totals(cluster: Cluster, invoices: str) -> list[int]:
    return [json.loads(each.value or b"")["total"] for each in cluster.records(invoices)]


def test_price_is_that_of_all_items() -> None:
    """Most tests need no broker."""
    assert invoice(b'{"tea": 2, "coffee": 1}') == b'{"total": 10}'


def test_order_becomes_an_invoice(tidelog_broker: Broker, tidelog_topic: str) -> None:
    invoices = tidelog_broker.create_topic()
    tidelog_broker.send(tidelog_topic, '{"tea": 2}', key="customer-7")
    with running(tidelog_broker.bootstrap, tidelog_topic, invoices) as worker:
        assert worker.handle_one(WITHIN_S)
    (found,) = tidelog_broker.records(invoices)
    assert (found.key, found.value) == (b"customer-7", b'{"total": 6}')


def test_worker_that_is_started_again_invoices_nothing_twice(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    invoices = tidelog_broker.create_topic()
    tidelog_broker.send(tidelog_topic, '{"tea": 1}', '{"coffee": 1}')
    for _start in range(2):
        with running(tidelog_broker.bootstrap, tidelog_topic, invoices) as worker:
            assert worker.handle_one(WITHIN_S)
    assert totals(tidelog_broker, invoices) == [3, 4]


@pytest.mark.tidelog(settings={"min.insync.replicas": 2})
def test_orders_are_invoiced_once_though_the_leader_is_killed(
    tidelog_cluster: Cluster, tidelog_topic: str
) -> None:
    invoices = tidelog_cluster.create_topic()
    with running(tidelog_cluster.bootstrap, tidelog_topic, invoices) as worker:
        tidelog_cluster.send(tidelog_topic, '{"tea": 1}')
        assert worker.handle_one(WITHIN_S)
        tidelog_cluster.kill_broker(tidelog_cluster.leader_of(invoices))
        tidelog_cluster.send(tidelog_topic, '{"coffee": 1}')
        assert worker.handle_one(WITHIN_S)
    assert totals(tidelog_cluster, invoices) == [3, 4]
