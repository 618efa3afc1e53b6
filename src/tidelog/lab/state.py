"""Who runs in a data folder, written down so that other processes can find and stop it.

The file says who was started, never who is alive: that is asked of the operating system, each time.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog.client.bootstrap import Address
from tidelog.lab.errors import LabError
from tidelog.lab.processes import ProcessIdentity, is_running

_VERSION = 1
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """One broker of the cluster, as it was started."""

    id: int
    host: str
    port: int
    pid: int
    start_mark: str
    started_ms: int

    @property
    def process(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.start_mark)

    @property
    def is_alive(self) -> bool:
        return is_running(self.process)

    @property
    def endpoint(self) -> Address:
        """Where a client on this machine reaches it."""
        return Address("127.0.0.1" if self.host in _ANY_ADDRESS else self.host, self.port)

    @property
    def address(self) -> str:
        return str(self.endpoint)


def read_state(path: Path) -> tuple[BrokerState, ...]:
    """The brokers that were started; none if the file is not there."""
    try:
        return _decode(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} does not say which brokers run; remove it if none does") from error


def write_state(path: Path, brokers: tuple[BrokerState, ...]) -> None:
    """Replace the file; a reader sees the old content or the new."""
    content = {"version": _VERSION, "brokers": [asdict(broker) for broker in brokers]}
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


def _decode(text: str) -> tuple[BrokerState, ...]:
    content = json.loads(text)
    if content["version"] != _VERSION:
        raise ValueError(content["version"])
    return tuple(
        BrokerState(
            id=int(broker["id"]),
            host=str(broker["host"]),
            port=int(broker["port"]),
            pid=int(broker["pid"]),
            start_mark=str(broker["start_mark"]),
            started_ms=int(broker["started_ms"]),
        )
        for broker in content["brokers"]
    )
