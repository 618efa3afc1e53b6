"""Starts sessions that cannot run tasks and prints why. Arguments: master, then Pythons.

The last reason printed is that of a session which wants more memory than any worker has.
"""

import json
import os
import sys

from tests.support.spark_job import SETTINGS
from tidelog.pipeline.session import spark_session
from tidelog.pipeline.shipping import WAIT_SETTING, WorkersUnfit

ONE_CORE = {**SETTINGS, "spark.cores.max": "1"}


def reason(master: str, python: str, settings: dict[str, str]) -> str:
    os.environ["PYSPARK_PYTHON"] = python
    try:
        spark_session(app_name="unfit", master=master, settings={**ONE_CORE, **settings}).stop()
    except WorkersUnfit as unfit:
        return str(unfit)
    return "none"


def main(master: str, *pythons: str) -> None:
    reasons = [reason(master, python, {}) for python in pythons]
    too_large = {"spark.executor.memory": "512g", WAIT_SETTING: "1"}
    reasons.append(reason(master, sys.executable, too_large))
    sys.stdout.write(json.dumps(reasons))


if __name__ == "__main__":
    main(*sys.argv[1:])
