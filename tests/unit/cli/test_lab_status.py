"""What `tidelog lab status --watch` draws of a cluster."""

import io

from rich.console import Console

from tidelog.cli.lab_status import render
from tidelog.client.values import PartitionDescription
from tidelog.lab.cluster_look import BrokerLook, ClusterLook, ProcessState
from tidelog.lab.network.parties import CLIENTS, broker_party
from tidelog.lab.network.status import LinkStatus

PARTITION_COUNT = 100
LINE_COUNT = 24
BROKERS = (
    BrokerLook(1, ProcessState.UP, has_full_disk=False),
    BrokerLook(2, ProcessState.DOWN, has_full_disk=True),
    BrokerLook(3, ProcessState.PAUSED, has_full_disk=None),
)


def partition(number: int, leader: int | None, *isr: int) -> PartitionDescription:
    return PartitionDescription(partition=number, leader=leader, replicas=(1, 2, 3), isr=isr)


def drawn(look: ClusterLook, *, line_count: int = LINE_COUNT) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=100).print(render(look, line_count=line_count))
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_it_fits_the_terminal_and_shows_first_what_lacks_something() -> None:
    partitions = {("orders", each): partition(each, 1, 1, 2, 3) for each in range(PARTITION_COUNT)}
    partitions["orders", 77] = partition(77, None, 1)
    partitions["__consumer_offsets", 1] = partition(1, 1, 1, 3)
    partitions["__consumer_offsets", 2] = partition(2, 1, 1, 2, 3)
    lines = drawn(ClusterLook(BROKERS, True, 1, partitions, ()))
    assert len(lines) <= LINE_COUNT
    first = next(index for index, line in enumerate(lines) if line.startswith("PARTITION")) + 1
    assert lines[first].split() == ["__consumer_offsets-1", "1", "1,3", "2"]
    assert lines[first + 1].split() == ["orders-77", "none", "1", "2,3"]
    shown = sum(line.startswith(("orders-", "__consumer_offsets-")) for line in lines)
    assert f"and {PARTITION_COUNT + 1 - shown} more partitions" in lines


def test_processes_disks_and_links_are_shown() -> None:
    links = (
        LinkStatus(a=broker_party(1), b=broker_party(2), is_cut=True, delay_ms=0),
        LinkStatus(a=broker_party(1), b=CLIENTS, is_cut=False, delay_ms=200),
    )
    look = ClusterLook(BROKERS, True, 1, {("orders", 0): partition(0, 1, 1, 3)}, links)
    lines = drawn(look)
    assert lines[1].split() == ["1", "up", "yes", "1", "1", "of", "1", "has", "room"]
    assert lines[2].split() == ["2", "down", "0", "0", "of", "1", "full"]
    assert lines[3].split() == ["3", "paused", "0", "1", "of", "1", "shared"]
    assert "broker 1 - broker 2  cut" in lines
    assert "broker 1 - clients   200 ms slower" in lines
    assert not look.is_well


def test_a_cluster_that_says_nothing_is_shown_as_that() -> None:
    lines = drawn(ClusterLook(BROKERS, False, None, {}, ()))
    assert lines[-1] == "No broker answers."
    assert lines[1].split() == ["1", "up", "-", "-", "has", "room"]


def test_a_cluster_is_well_when_nothing_is_amiss() -> None:
    up = (BrokerLook(1, ProcessState.UP, has_full_disk=None),)
    whole = {("orders", 0): partition(0, 1, 1, 2, 3)}
    assert ClusterLook(up, True, 1, whole, ()).is_well
    assert not ClusterLook(up, False, 1, whole, ()).is_well
    assert not ClusterLook(up, True, 1, {("orders", 0): partition(0, 1, 1)}, ()).is_well
    assert not ClusterLook(BROKERS, True, 1, whole, ()).is_well
