"""What is said where Spark's packages are missing, and that nobody else's job suffers."""

import json
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules

import pytest

from tidelog.pipeline.registration import ExtraMissing, require_extra

LOOKED_UP_WITHOUT_ARROW = """\
import json, sys
sys.modules["pyarrow"] = None
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource
import pyspark_tidelog
source = pyspark_tidelog.DefaultSource
assert issubclass(source, DataSource)
try:
    cloudpickle.loads(cloudpickle.dumps(source))({})
except ImportError as error:
    print(json.dumps([source.name(), str(error)]))
"""


def test_what_is_missing_is_named_with_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ExtraMissing) as raised:
        require_extra()
    assert "pyspark and pyarrow are not installed" in str(raised.value)
    assert "pip install 'tidelog[pipeline]'" in str(raised.value)


def test_spark_finds_the_package_by_its_name() -> None:
    assert "pyspark_tidelog" in {module.name for module in iter_modules()}


def test_without_arrow_only_who_uses_the_format_is_told() -> None:
    output = subprocess.run(
        [sys.executable, "-c", LOOKED_UP_WITHOUT_ARROW], capture_output=True, text=True, check=True
    )
    name, sentence = json.loads(output.stdout)
    assert name == "tidelog"
    assert "pyarrow" in sentence
    assert "pip install 'tidelog[pipeline]'" in sentence
