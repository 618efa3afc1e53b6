"""Free TCP ports on the loopback interface."""

import random
import socket

# Below the range from which the kernel takes ports of outgoing connections, so that a client's
# connection cannot sit on a port that was free a moment ago.
FIRST_PORT = 15_000
LAST_PORT = 31_999
ATTEMPTS_MAX = 1_000

_random = random.SystemRandom()


def free_port() -> int:
    """A port nobody listens on. Another process may still take it before it is used."""
    for _attempt in range(ATTEMPTS_MAX):
        port = _random.randint(FIRST_PORT, LAST_PORT)
        if _is_free(port):
            return port
    raise OSError(f"no free port between {FIRST_PORT} and {LAST_PORT}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
