"""Free TCP ports on the loopback interface.

The port of a server that was killed is free until it is started again: so each worker of a test run
has ports of its own, and does not give those again that it has given lately.
"""

import os
import random
import socket
from collections import deque

# Below the range from which the kernel takes ports of outgoing connections, so that a client's
# connection cannot sit on a port that was free a moment ago.
FIRST_PORT = 15_000
LAST_PORT = 31_999
ATTEMPTS_MAX = 1_000
WORKERS_MAX = 8
REMEMBERED_MAX = 500

_random = random.SystemRandom()
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS_MAX
_given: deque[int] = deque(maxlen=REMEMBERED_MAX)


def free_port() -> int:
    """A port nobody listens on. Another process may still take it before it is used."""
    for _attempt in range(ATTEMPTS_MAX):
        port = _random.randrange(FIRST_PORT + _worker, LAST_PORT + 1, WORKERS_MAX)
        if port not in _given and _is_free(port):
            _given.append(port)
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
