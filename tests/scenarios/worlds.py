"""Which world a transcript's first command chooses, and where the transcripts are."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.scenarios.producer_log import ProducerLog
from tests.scenarios.replicas import Replicas
from tests.scenarios.transcript import Command, World

WORLDS: Mapping[str, Callable[[Command], World]] = {"cluster": Replicas, "log": ProducerLog}

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
