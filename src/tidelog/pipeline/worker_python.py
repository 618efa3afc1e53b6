"""The Python that Spark runs beside a local driver: one that does not compile pyspark every time.

Spark puts its own archive, `pyspark.zip`, before everything else on the path of every Python that
it starts. What is imported from an archive is compiled anew by each process, and a stream has a new
process to plan it: 0.7 s of work before its first micro-batch. So Spark is given a script in front
of the real program, which takes that archive off the path again; what is imported then is the
pyspark that is installed, the same one that the driver runs.
"""

import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Final

from tidelog.pipeline.cached_files import cached_program

_WRAPPER: Final = """\
#!/bin/sh
# The driver's Python for Spark, which imports the pyspark that is installed. Written by tidelog.
set -f
kept=
IFS=:
for folder in $PYTHONPATH; do
  case $folder in
    {home}/python/lib/*.zip | {home}/jars/*.jar) ;;
    *) kept=${{kept:+$kept:}}$folder ;;
  esac
done
PYTHONPATH=$kept exec {program} "$@"
"""


def worker_python(*, pyspark: Path, spark_home: str | None) -> Path:
    """What to run in place of this Python, where its pyspark is in the folder `pyspark`.

    That is this Python itself where the archive is of another Spark, which the user has named, or
    where a process that Spark starts would not find this pyspark by itself.
    """
    this = Path(sys.executable)
    if spark_home or pyspark.parent != Path(sysconfig.get_path("purelib")):
        return this
    # Spark knows its home by the path without links.
    home = shlex.quote(str(pyspark.resolve()))
    script = _WRAPPER.format(home=home, program=shlex.quote(str(this)))
    return cached_program("bin/python", script)
