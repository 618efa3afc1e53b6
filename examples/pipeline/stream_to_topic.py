"""A stream from topic to topic, each record once: kill it at any time and start it again.

    python examples/pipeline/stream_to_topic.py FROM TO CHECKPOINT

Values are made upper case on the way. The checkpoint is a folder that remembers how far the stream
is; the group `stream_to_topic` is told too, so that `tidelog groups describe` shows the lag. It
ends when all that is there was copied; without `.trigger(availableNow=True)` it would go on.
"""

import os
import sys

from tidelog.pipeline.session import spark_session

bootstrap = os.environ.get("TIDELOG_BOOTSTRAP", "127.0.0.1:9092")
source, target, checkpoint = sys.argv[1:4]

spark = spark_session(app_name="stream to topic")
records = (
    spark.readStream.format("tidelog")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .option("commitGroup", "stream_to_topic")
    .option("kafka.isolation.level", "read_committed")
    .load()
)
query = (
    records.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    .writeStream.format("tidelog")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("topic", target)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(f"{sum(batch.numInputRows for batch in query.recentProgress)} records")  # noqa: T201
