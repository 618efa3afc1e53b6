"""Ports for servers that are about to be started: the ones asked for, or any that are free.

A port is held until all that are needed are found, so none is chosen twice, and one that was free
is claimed, so that no other process that chooses ports here is given it (`port_claims.py`). Between
letting go of it and the server's own bind somebody else may take it; the server then says so and
ends.
"""

import random
import socket
from contextlib import ExitStack
from typing import Final

from tidelog.lab.errors import PortInUse
from tidelog.lab.port_claims import claim

PORT_MAX: Final = 65_535
# Below what systems give to outgoing connections: a server that restarts finds its ports free.
_FREE_PORTS: Final = range(12_000, 32_000)


def choose_ports(host: str, *, first_port: int, count: int) -> tuple[int, ...]:
    """`first_port` and those that follow it, or any free ones if it is 0; PortInUse names one."""
    chance = random.SystemRandom()
    with ExitStack() as held:
        return tuple(
            hold_port(held, host, first_port + index)
            if first_port
            else hold_any_port(held, host, chance)
            for index in range(count)
        )


def hold_port(held: ExitStack, host: str, port: int) -> int:
    """Keep others from the port until `held` is closed; PortInUse if somebody has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    probe = held.enter_context(socket.socket(family))
    # As the server will: connections of one that was just stopped do not count.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, port))
    except (OSError, OverflowError) as error:
        raise PortInUse(host, port) from error
    return port


def hold_any_port(held: ExitStack, host: str, chance: random.Random) -> int:
    """The same with a port that nobody has."""
    while True:
        port = chance.choice(_FREE_PORTS)
        try:
            hold_port(held, host, port)
        except PortInUse:
            continue
        if claim(port):
            return port
