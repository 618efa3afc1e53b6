"""De-duplicates a topic and kills itself with -9 when its first micro-batch is written.

Spark does not know by then that it was.
"""

import os
import signal
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.support.spark_job import CORE_COUNT, SETTINGS
from tidelog.pipeline import dedup
from tidelog.pipeline.micro_batches import BatchFunction, topic_writer
from tidelog.pipeline.record_fields import HeaderField
from tidelog.pipeline.running import RunTerms
from tidelog.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def dying_writer(*arguments: Any) -> BatchFunction:
    write = topic_writer(*arguments)

    def write_and_die(frame: "DataFrame", number: int) -> None:
        write(frame, number)
        os.kill(os.getpid(), signal.SIGKILL)

    return write_and_die


def main() -> None:
    bootstrap, source, target, checkpoint = sys.argv[1:]
    spark = spark_session(app_name="dying-dedup", master=f"local[{CORE_COUNT}]", settings=SETTINGS)
    with patch.object(dedup, "topic_writer", dying_writer):
        dedup.dedup_topic(
            spark,
            source=source,
            target=target,
            kafka={"kafka.bootstrap.servers": bootstrap},
            field=HeaderField("guid"),
            watermark="10 minutes",
            terms=RunTerms(checkpoint=checkpoint, is_once=True),
            keeps_partitions=True,
            batch_records=50,
        )


if __name__ == "__main__":
    main()
