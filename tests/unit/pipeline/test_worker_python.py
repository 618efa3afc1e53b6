"""Which Python Spark's workers run, and from where it imports pyspark."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tidelog.pipeline.worker_python import worker_python

INSTALLED = Path(sysconfig.get_path("purelib")) / "pyspark"
HOME = INSTALLED.resolve()
SAYS_ITS_PATH = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, *sys.argv[1:])"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def said(program: Path, path: str) -> str:
    return subprocess.run(
        [program, "-c", SAYS_ITS_PATH, "an argument", "*"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (f"{HOME}/python/lib/pyspark.zip:/a b:{HOME}/jars/core.jar:/c/*", "/a b:/c/*"),
        (f"/first:{HOME}/python/lib/py4j.zip", "/first"),
        ("/other/python/lib/pyspark.zip", "/other/python/lib/pyspark.zip"),
        ("", ""),
    ],
)
def test_what_is_imported_is_what_is_installed(path: str, kept: str) -> None:
    program = worker_python(pyspark=INSTALLED, spark_home=None)
    assert said(program, path) == f"{kept} {sys.executable} an argument *".strip()


def test_the_archive_of_a_spark_that_the_user_names_is_used() -> None:
    assert worker_python(pyspark=INSTALLED, spark_home="/opt/spark") == Path(sys.executable)


def test_a_pyspark_that_workers_would_not_find_comes_from_its_archive(tmp_path: Path) -> None:
    assert worker_python(pyspark=tmp_path / "pyspark", spark_home=None) == Path(sys.executable)
