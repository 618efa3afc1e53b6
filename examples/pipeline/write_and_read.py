"""The shortest job over a topic: Spark writes orders to it, reads them again and counts them.

    python examples/pipeline/write_and_read.py [TOPIC]

A topic that is not there yet is created by the brokers. Run again, it adds as many orders.
"""

import os
import sys

from pyspark.sql import functions

from tidelog.pipeline.session import spark_session

ORDER_COUNT = 100_000

bootstrap = os.environ.get("TIDELOG_BOOTSTRAP", "127.0.0.1:9092")
topic = sys.argv[1] if len(sys.argv) > 1 else "orders"

spark = spark_session(app_name="write and read")
orders = spark.range(ORDER_COUNT).selectExpr(
    "CAST(id % 1000 AS STRING) AS key",
    "to_json(named_struct('id', id, 'amount', id % 500)) AS value",
)
(
    orders.write.format("tidelog")
    .mode("append")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("topic", topic)
    .save()
)
records = (
    spark.read.format("tidelog")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("kafka.isolation.level", "read_committed")
    .option("subscribe", topic)
    .load()
)
amount = functions.get_json_object(records.value.cast("string"), "$.amount").cast("bigint")
(
    records.groupBy("partition")
    .agg(functions.count("*").alias("orders"), functions.sum(amount).alias("amount"))
    .orderBy("partition")
    .show()
)
