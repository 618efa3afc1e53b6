"""Whatever a coordinator finds in its log, it leads: one record must not stop a broker (P3).

Clients may not write to `__consumer_offsets`, but administrators may, and Kafka's folders are
adopted with what is in them. Records that are read one by one need not make sense together.
"""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.groups.consumer.consumers import ConsumerHosted
from tests.unit.core.groups.found_records import FOUND, MEMBERS, METADATA
from tests.unit.core.groups.hosted import GROUP
from tidelog.base.errors import RequestRefused
from tidelog.core.groups.consumer.requests import ConsumerHeartbeat
from tidelog.core.groups.requests import JoinProtocol, LeavingMember

_FOREVER_MS = 10**8


def _ask_everything(world: ConsumerHosted, member_id: str) -> None:
    world.listed()
    world.ask(lambda token: world.shard.on_describe(GROUP, token, world.now_ms))
    world.ask(lambda token: world.shard.on_consumer_describe(GROUP, token, world.now_ms))
    world.heartbeat(member_id, 1)
    with suppress(RequestRefused):
        world.send(
            ConsumerHeartbeat(
                group_id=GROUP,
                member_id=member_id,
                member_epoch=0,
                rebalance_timeout_ms=1_000,
                topics=frozenset(("orders",)),
                owned=frozenset(),
            )
        )
    world.join("new", member_id=member_id, protocols=[JoinProtocol("range", METADATA)])
    world.leave(LeavingMember(member_id, None))


@given(records=st.lists(FOUND, max_size=8), member_id=MEMBERS, is_asked=st.booleans())
def test_a_coordinator_leads_whatever_it_finds(
    records: list[object], member_id: str, is_asked: bool
) -> None:
    world = ConsumerHosted()
    world.set_topics({"orders": 3})
    world.written = [(record, None) for record in records]  # type: ignore[misc]
    world.restart()
    if is_asked:
        _ask_everything(world, member_id)
    world.advance(_FOREVER_MS)
    world.restart()
