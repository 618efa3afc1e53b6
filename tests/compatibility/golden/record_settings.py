"""Ask Kafka's own classes for its settings, and write them down.

    python -m tests.compatibility.golden.record_settings

Needs the jars of `make peers` and a Java that compiles. Of each setting of brokers, topics and
groups: type, default, which values are valid in Kafka's own notation, and for brokers how it may
change while they run. Where Kafka has no such notation, `refuses` are those numbers among -3, -2,
-1, 0, 1 and 5 with which a broker does not start.
"""

import json
import subprocess
from pathlib import Path

from tests.support.kafka_process import java_command
from tidelog.lab.peers import KAFKA_VERSION

_FOLDER = Path(__file__).parent


def main() -> None:
    source = str(_FOLDER / "DumpSettings.java")
    dumped = subprocess.run(
        java_command((), source), check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    json.loads(dumped)
    (_FOLDER / f"kafka-{KAFKA_VERSION}-settings.json").write_text(dumped, "utf-8")


if __name__ == "__main__":
    main()
