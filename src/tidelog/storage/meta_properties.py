"""`meta.properties`: to which broker of which cluster a log dir belongs.

Written as Kafka 4 writes it (version 1). Version 0, which names the broker `broker.id`, is read.
"""

from dataclasses import dataclass
from pathlib import Path

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId
from tidelog.base.ports import Disk


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """`directory_id` is None where version 0 knew none."""

    broker_id: BrokerId
    cluster_id: str
    directory_id: str | None


def read_meta_properties(disk: Disk, path: Path) -> MetaProperties | None:
    """What the file says; None if it is absent. Nonsense is a ConfigError that names it."""
    if not disk.exists(path):
        return None
    text = disk.read_file(path).decode("utf-8", "replace")
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            fields[name.strip()] = value.strip()
    broker_id = fields.get("node.id", fields.get("broker.id", ""))
    cluster_id = fields.get("cluster.id", "")
    if fields.get("version") not in ("0", "1") or not broker_id.isdigit() or not cluster_id:
        raise ConfigError(f"{path} does not say which broker and cluster the folder belongs to")
    return MetaProperties(BrokerId(int(broker_id)), cluster_id, fields.get("directory.id"))


def write_meta_properties(disk: Disk, path: Path, properties: MetaProperties) -> None:
    assert properties.directory_id is not None
    text = (
        "#\n"
        f"node.id={properties.broker_id}\n"
        f"directory.id={properties.directory_id}\n"
        "version=1\n"
        f"cluster.id={properties.cluster_id}\n"
    )
    disk.replace_file(path, text.encode())
