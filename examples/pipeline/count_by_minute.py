"""A topic as a data frame: how many records came in each minute, and how large they are.

    python examples/pipeline/count_by_minute.py TOPIC

`spark_session` finds a Java, keeps Spark quiet and knows `format("tidelog")`. In a session of your
own, `tidelog.pipeline.register(spark)` is all there is to it.
"""

import os
import sys

from pyspark.sql import functions

from tidelog.pipeline.session import spark_session

bootstrap = os.environ.get("TIDELOG_BOOTSTRAP", "127.0.0.1:9092")
topic = sys.argv[1] if len(sys.argv) > 1 else "demo"

spark = spark_session(app_name="count by minute")
records = (
    spark.read.format("tidelog")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .load()
)
(
    records.groupBy(functions.date_trunc("minute", "timestamp").alias("minute"))
    .agg(
        functions.count("*").alias("records"),
        functions.sum(functions.length("value")).alias("bytes"),
    )
    .orderBy("minute")
    .show()
)
