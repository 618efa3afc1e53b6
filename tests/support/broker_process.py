"""A tidelog broker as a child process, as an operator would start it."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.ports import free_port
from tests.support.server_process import ServerProcess

READY_LINE = re.compile(r"^tidelog broker (\d+) listening on (\S+):(\d+)", re.MULTILINE)
NODE_ID = 1


class BrokerProcess(ServerProcess):
    """`python -m tidelog broker` in a folder of its own; restarts keep the port and the data."""

    name = "tidelog"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.data_folder = folder / "data"
        self.settings = dict(settings or {})

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        settings = {
            "node.id": str(NODE_ID),
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data_folder),
            **self.settings,
        }
        pairs = [f"{name}={value}" for name, value in settings.items()]
        arguments = [argument for pair in pairs for argument in ("--set", pair)]
        return [sys.executable, "-m", "tidelog", "broker", *arguments]

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONUNBUFFERED": "1"}

    def is_ready(self) -> bool:
        return READY_LINE.search(self.log_text_of_this_start()) is not None
