"""By which watermark a micro-batch tells records that are late (X4).

Spark drops what is late behind a first round of counting, and says how many windows and groups that
were, not how many records. Whoever wants to know compares each record with the watermark before.
That is in the checkpoint before the micro-batch begins: `offsets/N` has the one that micro-batch N
closes windows by, and N drops what micro-batch N - 1 closed.

So it is a subquery of one row, which Spark runs anew with each micro-batch and puts in as a number;
no record goes through Python for it.

    offsets/41   batchWatermarkMs 10:00     windows up to 10:00 are written and forgotten
    offsets/42   batchWatermarkMs 10:05     a record of 09:58 is late; one of 10:01 is not yet

Tasks read it: the checkpoint is in a folder that all share, as it has to be on a cluster.
"""

import functools
import json
import os
from typing import TYPE_CHECKING, Final

from pyarrow import fs

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_BATCH: Final = "streaming.sql.batchId"


def late_watermark_ms(spark: "SparkSession", checkpoint: str) -> "Column":
    """Of the micro-batch that runs; null in the first one, and where it cannot be read."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    located = checkpoint if ":" in checkpoint else os.path.abspath(checkpoint)  # noqa: PTH100
    read = f.udf(functools.partial(_of_running_batch, located), "bigint", useArrow=False)
    return spark.range(0, 1, 1, 1).select(read("id")).scalar()


def watermark_in(checkpoint: str, number: int) -> int | None:
    """By which micro-batch `number` closes windows; None if that is nowhere to be read."""
    try:
        system, path = fs.FileSystem.from_uri(checkpoint)
        with system.open_input_stream(f"{path.rstrip('/')}/offsets/{number}") as file:
            _version, metadata, *_offsets = file.read().decode().split("\n")
        return int(json.loads(metadata)["batchWatermarkMs"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # Lateness is for people to know; it is no reason to end the job.


def _of_running_batch(checkpoint: str, _id: int) -> int | None:
    from pyspark import TaskContext  # noqa: PLC0415 - needs the extra

    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty(_BATCH)
    return None if number is None else watermark_in(checkpoint, int(number) - 1)
