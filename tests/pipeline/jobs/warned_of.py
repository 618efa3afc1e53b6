"""Goes on where less is to be had than was asked for: what is said of it is on standard error.

Arguments: brokers without transactions, a topic whose first records are gone, a folder, and three
topics to write to.
"""

import sys

from tests.support.spark_job import CONF, CORE_COUNT, SETTINGS
from tidelog.cli import app
from tidelog.pipeline.session import spark_session

MASTER = f"local[{CORE_COUNT}]"


def main(bootstrap: str, source: str, folder: str, *targets: str) -> None:
    by_command, by_stream, by_batch = targets
    spark = spark_session(app_name="warned", master=MASTER, settings=SETTINGS)
    command = ["pipeline", "dedup", source, by_command, "--id", "key", "--once"]
    common = ["--bootstrap", bootstrap, "--master", MASTER, *CONF, "--checkpoint", f"{folder}/one"]
    app.run([*command, *common, "--json"])
    kafka = {"kafka.bootstrap.servers": bootstrap}
    lossy = {
        **kafka,
        "subscribe": source,
        "startingOffsets": f'{{"{source}": {{"0": 0}}}}',
        "failOnDataLoss": "false",
    }
    stream = spark.readStream.format("tidelog").options(**lossy, maxOffsetsPerTrigger="5")
    query = (
        stream.load()
        .select("value")
        .writeStream.format("tidelog")
        .options(**kafka, topic=by_stream, checkpointLocation=f"{folder}/two")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.read.format("tidelog").options(**lossy).load().select("value")
    rows.write.format("tidelog").mode("append").options(**kafka, topic=by_batch).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
