"""Is everything in the log that producers were told is there, and nothing else? (X5)

    ledger = read_ledger(spark, ["ledger/"])
    log = spark.read.format("tidelog").options(subscribe="orders", includeHeaders=True)...
    report = verify(ledger, log)

And are the replicas of a partition equal? `compare_replicas` reads them from their folders.
"""

from tidelog.pipeline.verify.ledger_rows import read_ledger
from tidelog.pipeline.verify.replicas import ReplicasReport, compare_replicas
from tidelog.pipeline.verify.report import Example, PartitionFindings, Problem, VerifyReport
from tidelog.pipeline.verify.verifying import verify

__all__ = [
    "Example",
    "PartitionFindings",
    "Problem",
    "ReplicasReport",
    "VerifyReport",
    "compare_replicas",
    "read_ledger",
    "verify",
]
