"""A query's checkpoint as a crash would have left it."""

import json
from pathlib import Path

DAY_MS = 86_400_000


def forget(checkpoint: Path, *names: str) -> None:
    """What the driver wrote down of the last micro-batch, as if it had died before."""
    for name in names:
        last = _last(checkpoint / name)
        last.unlink()
        _checksum(last).unlink(missing_ok=True)


def begin_earlier(checkpoint: Path, *, days: int) -> None:
    """As if the last micro-batch had been planned then."""
    last = _last(checkpoint / "offsets")
    version, metadata, rest = last.read_text("utf-8").split("\n", 2)
    known = json.loads(metadata)
    known["batchTimestampMs"] -= days * DAY_MS
    last.write_text("\n".join((version, json.dumps(known), rest)), "utf-8")
    _checksum(last).unlink()


def _last(folder: Path) -> Path:
    return folder / str(max(int(file.name) for file in folder.glob("[0-9]*")))


def _checksum(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")
