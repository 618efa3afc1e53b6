"""How a leader of cooperative members shares out: evenly, and nothing that another still owns."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import TopicPartition
from tidelog.sim.classic_member import Share
from tidelog.sim.cooperative_member import share_out

COUNT = 6
NAMES = "abcde"


def _partitions(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)


def _shares(claims: Mapping[str, frozenset[TopicPartition]]) -> Mapping[str, set[int]]:
    shares: Share = share_out(claims, "t", COUNT)
    return {member: {one.partition for one in share} for member, share in shares.items()}


def test_what_is_to_move_is_nobodys_at_first() -> None:
    assert _shares({"a": _partitions(*range(6)), "b": _partitions()}) == {
        "a": {0, 1, 2},
        "b": set(),
    }
    assert _shares({"a": _partitions(0, 1, 2), "b": _partitions()}) == {
        "a": {0, 1, 2},
        "b": {3, 4, 5},
    }


def test_what_two_claim_is_neithers() -> None:
    shares = _shares({"a": _partitions(0, 1, 2), "b": _partitions(2, 3, 4)})
    assert shares == {"a": {0, 1}, "b": {3, 4, 5}}


@given(owners=st.lists(st.sampled_from([*NAMES, None]), min_size=COUNT, max_size=COUNT))
def test_shares_are_even_after_two_rounds(owners: list[str | None]) -> None:
    claims = {
        name: _partitions(*(number for number, owner in enumerate(owners) if owner == name))
        for name in NAMES
    }
    first = _shares(claims)
    for member, share in first.items():
        for number in share:
            assert owners[number] in (member, None)
    second = _shares({name: _partitions(*share) for name, share in first.items()})
    assert all(second[name] >= first[name] for name in NAMES)
    assert sorted(number for share in second.values() for number in share) == [*range(COUNT)]
    assert {len(share) for share in second.values()} <= {1, 2}
