"""Topics as Spark data frames, and the pipelines that are made of them (X1-X7).

import tidelog.pipeline
tidelog.pipeline.register(spark)
spark.read.format("tidelog")...
"""

from tidelog.pipeline.registration import register

__all__ = ["register"]
