"""What people type to say whom they mean (B3)."""

import pytest

from tidelog.base.errors import ConfigError
from tidelog.lab.fault_kinds import Role
from tidelog.lab.targets import (
    BrokersTarget,
    CoordinatorTarget,
    PartitionTarget,
    RoleTarget,
    Target,
    parse_target,
)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("2", BrokersTarget((2,))),
        ("3 1 3", BrokersTarget((3, 1))),
        ("leader of orders", PartitionTarget(Role.LEADER, "orders", 0)),
        ("leader orders:2", PartitionTarget(Role.LEADER, "orders", 2)),
        ("follower of a:b:12", PartitionTarget(Role.FOLLOWER, "a:b", 12)),
        ("leader of Of", PartitionTarget(Role.LEADER, "Of", 0)),
        ("leader of of", PartitionTarget(Role.LEADER, "of", 0)),
        ("controller", RoleTarget(Role.CONTROLLER)),
        ("minority", RoleTarget(Role.MINORITY)),
        ("majority", RoleTarget(Role.MAJORITY)),
        ("all", RoleTarget(Role.ALL)),
        ("random", RoleTarget(Role.RANDOM)),
        (
            "group coordinator of billing",
            CoordinatorTarget(Role.GROUP_COORDINATOR, "billing"),
        ),
        (
            "transaction coordinator mover-1",
            CoordinatorTarget(Role.TRANSACTION_COORDINATOR, "mover-1"),
        ),
    ],
)
def test_words_mean_somebody(words: str, meant: Target) -> None:
    assert parse_target(words.split()) == meant


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "nobody is named"),
        ("boss", "'boss' is nobody; targets are broker numbers"),
        ("1 two", "'two' is no number of a broker"),
        ("leader", "'leader' takes 'of' and a topic"),
        ("leader of", "'leader' takes 'of' and a topic"),
        ("leader of a b", "not 'of a b'"),
        ("group of billing", "'group of billing' is nobody"),
        ("group coordinator", "'group coordinator' takes 'of' and a name"),
        ("controller 1", "'1' is too much behind 'controller'"),
        ("zookeeper leader", "'zookeeper leader' is nobody"),
    ],
)
def test_words_that_mean_nobody_are_refused(words: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_target(words.split())
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("leader orders:2", "leader of orders-2"),
        ("group coordinator billing", "group coordinator of billing"),
        ("2 1", "2 1"),
        ("all", "all"),
    ],
)
def test_a_target_is_named_in_answers(words: str, name: str) -> None:
    assert str(parse_target(words.split())) == name
