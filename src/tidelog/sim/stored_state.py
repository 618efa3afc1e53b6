"""A partition's state as the coordinator has it."""

from typing import NamedTuple


class StoredState(NamedTuple):
    """What everybody will agree on, whoever knows of it yet."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_moving: bool
    """Whether replicas are being added or taken away."""

    version: int
