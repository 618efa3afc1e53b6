"""What Kafka's DumpLogSegments says about a partition folder.

The tool answers 0 even when it finds fault, so its words are read: `complaints` holds every one of
them, and a folder is right if there is none. Options exclude each other inside the tool (a sanity
check skips the verification), hence one run per option.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka_tools import ToolResult, run_tool

DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
BATCH_LINE = re.compile(
    r"^baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+) "
    r"baseSequence: (?P<base_sequence>-?\d+) lastSequence: (?P<last_sequence>-?\d+) "
    r"producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<leader_epoch>-?\d+) .* "
    r"(?P<timestamp_type>CreateTime|LogAppendTime): (?P<timestamp_ms>-?\d+) "
    r"size: \d+ magic: (?P<magic>\d) compresscodec: (?P<codec>\w+) crc: \d+ "
    r"isvalid: (?P<is_valid>true|false)$",
    re.MULTILINE,
)
RECORD_LINE = re.compile(r"^\| offset: (\d+) ", re.MULTILINE)
# Said of every segment but the first, because the tool starts each file from offset -1.
FIRST_OFFSET_NOTE = re.compile(r"^  -1 is followed by \d+\n", re.MULTILINE)
LONE_HEADING = re.compile(r"^Non-consecutive offsets in .*\n(?!  )", re.MULTILINE)
FAULTS_IN_STDOUT = re.compile(r"^.*(?:isvalid: false|invalid bytes|rror).*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One batch as the tool read it."""

    base_offset: int
    last_offset: int
    record_count: int
    base_sequence: int
    producer_id: int
    timestamp_type: str
    codec: str


@dataclass(frozen=True, slots=True)
class FolderDump:
    """All segments of one partition in order of their offsets."""

    batches: Sequence[DumpedBatch]
    record_offsets: Sequence[int]
    snapshots: str
    complaints: Sequence[str]


def dump_folder(folder: Path) -> FolderDump:
    """Deep iteration over every log, sanity check and verification of every index."""
    logs = _dump(folder, ["log"], "--deep-iteration")
    sanity = _dump(folder, ["index", "timeindex"], "--index-sanity-check")
    verified = _dump(folder, ["index", "timeindex"], "--verify-index-only")
    snapshots = _dump(folder, ["snapshot"])
    runs = (logs, sanity, verified, snapshots)
    return FolderDump(
        batches=[_batch(match) for match in BATCH_LINE.finditer(logs.stdout)],
        record_offsets=[int(offset) for offset in RECORD_LINE.findall(logs.stdout)],
        snapshots=snapshots.stdout,
        complaints=[
            *(complaint for run in runs for complaint in _complaints(run)),
            *_unchecked(folder, sanity.stdout),
        ],
    )


def _dump(folder: Path, suffixes: Iterable[str], *options: str) -> ToolResult:
    files = sorted(str(path) for suffix in suffixes for path in folder.glob(f"*.{suffix}"))
    if not files:
        return ToolResult(0, "", "")
    return run_tool(DUMP_LOG_SEGMENTS, *options, "--files", ",".join(files))


def _batch(match: re.Match[str]) -> DumpedBatch:
    return DumpedBatch(
        base_offset=int(match["base_offset"]),
        last_offset=int(match["last_offset"]),
        record_count=int(match["count"]),
        base_sequence=int(match["base_sequence"]),
        producer_id=int(match["producer_id"]),
        timestamp_type=match["timestamp_type"],
        codec=match["codec"],
    )


def _complaints(result: ToolResult) -> Iterable[str]:
    if result.exit_code != 0:
        yield f"exit code {result.exit_code}"
    yield from LONE_HEADING.sub("", FIRST_OFFSET_NOTE.sub("", result.stderr)).splitlines()
    yield from FAULTS_IN_STDOUT.findall(result.stdout)


def _unchecked(folder: Path, stdout: str) -> Iterable[str]:
    """The tool stops at the first file it cannot read; those after it are not right but unread."""
    for path in sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")]):
        if f"{path} passed sanity check." not in stdout and f"{path} is empty." not in stdout:
            yield f"no sanity check of {path.name}"
