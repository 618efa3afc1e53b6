"""What is taken to workers, and in which words it is said what they lack."""

import json
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import tidelog
from tidelog.pipeline.shipping import (
    NEEDED,
    WorkerPython,
    WorkersUnfit,
    look_at_planner,
    pack,
    reason_of,
    require_fit,
)
from tidelog.records.compiled import compiled

IMPORTED = """\
import json, sys
import tidelog.pipeline.source
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
IMPORT_UNPACKED = """\
import sys
sys.path.insert(1, sys.argv[1])
import tidelog.pipeline.source
from tidelog.records.compiled import compiled
print(tidelog.__file__, compiled is not None)
"""
OF_OTHERS = {"py4j", "pyspark", "numpy", "pandas", "pytz", "dateutil", "six"}
"""What an executor brings itself, and what pyarrow imports if it is there."""


def test_what_tasks_import_is_what_workers_are_said_to_need() -> None:
    output = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    installed = set(json.loads(output.stdout)) & set(packages_distributions())
    ours = {name for name in installed if name.endswith("tidelog")}
    assert installed - ours - OF_OTHERS - {"_distutils_hack"} == set(NEEDED)


def test_the_package_is_packed_as_it_is(tmp_path: Path) -> None:
    pack(tmp_path / "tidelog.zip")
    with zipfile.ZipFile(tmp_path / "tidelog.zip") as packed:
        assert packed.read("__init__.py") == Path(tidelog.__file__).read_bytes()
        names = packed.namelist()
    assert "pipeline/source.py" in names
    assert "records/_ids.pyx" in names
    assert not any("__pycache__" in name for name in names)


@pytest.mark.parametrize("is_compiled", [True, False], ids=["same platform", "another"])
def test_what_was_unpacked_can_be_imported_without_the_original(
    tmp_path: Path, is_compiled: bool
) -> None:
    pack(tmp_path / "tidelog.zip")
    unpacked = tmp_path / "unpacked" / "tidelog"
    with zipfile.ZipFile(tmp_path / "tidelog.zip") as packed:
        packed.extractall(unpacked)
    if not is_compiled:
        for module in unpacked.rglob("*.so"):
            module.rename(module.with_name(f"{module.name.partition('.')[0]}.cpython-39-s390x.so"))
    output = subprocess.run(
        [sys.executable, "-c", IMPORT_UNPACKED, str(unpacked.parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = is_compiled and compiled is not None
    assert output.stdout == f"{unpacked / '__init__.py'} {expected}\n"


def test_workers_that_have_everything_are_fit() -> None:
    require_fit([WorkerPython("a", "/python", ()), WorkerPython("b", "/python", ())])


def test_what_a_worker_lacks_is_said_with_the_command_that_brings_it() -> None:
    pythons = [
        WorkerPython("a", "/opt/python", ()),
        WorkerPython("b", "/opt/python", ("confluent_kafka", "crc32c")),
    ]
    with pytest.raises(WorkersUnfit) as raised:
        require_fit(pythons)
    assert "on b lacks confluent_kafka, crc32c" in str(raised.value)
    assert "/opt/python -m pip install confluent-kafka crc32c" in str(raised.value)


def test_a_python_that_workers_have_and_the_driver_does_not_is_named() -> None:
    with pytest.raises(WorkersUnfit, match=r"/nowhere/python is not there on .*driver's machine"):
        look_at_planner("/nowhere/python")


def test_a_python_that_does_not_run_next_to_the_driver_is_named() -> None:
    with pytest.raises(WorkersUnfit, match=r"/bin/false does not run on .*driver's machine"):
        look_at_planner("/bin/false")


def test_what_a_planner_lacks_is_what_a_worker_would() -> None:
    assert look_at_planner(sys.executable).missing == ()


def test_a_planner_without_packages_says_what_it_lacks(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False, symlinks=True)
    bare = look_at_planner(str(tmp_path / "bin" / "python"))
    assert set(bare.missing) == set(NEEDED)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "Job aborted\nTraceback:\npyspark.errors.exceptions.base.PySparkRuntimeError: "
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.\n",
            "Spark's workers run Python 3.12 and the driver 3.11",
        ),
        (
            'Job aborted: java.io.IOException: Cannot run program "/venv/bin/python": error=2\n',
            "Spark's workers cannot run /venv/bin/python",
        ),
        (
            "Job aborted\nTraceback (most recent call last):\n  File\n"
            "ModuleNotFoundError: No module named 'tidelog'\n\n\tat org.apache.spark\n",
            "ModuleNotFoundError: No module named 'tidelog'",
        ),
        ("Job aborted due to stage failure\n\tat org.apache", "Job aborted due to stage failure"),
        ("", "no reason given"),
    ],
)
def test_a_failed_task_comes_down_to_a_sentence(message: str, reason: str) -> None:
    assert reason in reason_of(message)
    assert "\n" not in reason_of(message)
