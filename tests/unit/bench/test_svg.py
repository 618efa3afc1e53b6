"""Pictures put values where they belong."""

import math
from xml.etree import ElementTree as ET

import pytest

from tests.unit.bench.made_up import interruption, latency_rounds, whole_results
from tidelog.bench import plots, svg
from tidelog.bench.measured import TIDELOG, IsrSample


def test_a_linear_scale_begins_at_nothing() -> None:
    scale = svg.LinearScale(50.0, 100.0, 200.0)
    assert (scale(0), scale(25), scale(50)) == (100, 150, 200)
    assert scale.ticks() == [0, 10, 20, 30, 40, 50]


def test_a_logarithmic_scale_gives_each_power_the_same_room() -> None:
    scale = svg.LogScale(0.1, 100.0, 0.0, 300.0)
    assert [round(scale(value)) for value in (0.1, 1, 10, 100)] == [0, 100, 200, 300]
    assert scale(0.0001) == 0
    assert scale.ticks() == [0.1, 1, 10, 100]


@pytest.mark.parametrize(
    ("rough", "step"), [(0.9, 1), (1.0, 1), (1.1, 2), (3, 5), (7, 10), (4_200, 5_000), (0.03, 0.05)]
)
def test_ticks_are_round(rough: float, step: float) -> None:
    assert math.isclose(svg.nice_step(rough), step)


def test_words_are_escaped() -> None:
    assert "&lt;b&gt;" in svg.text(1, 2, "<b>")


def test_a_run_of_equal_samples_is_one_stretch() -> None:
    samples = [IsrSample(0.0, (4,)), IsrSample(0.1, (4,)), IsrSample(0.5, (2,))]
    assert plots.runs_of(samples, 0, 1.0) == [(0.0, 0.5, 4), (0.5, 1.0, 2)]


def drawings() -> dict[str, str]:
    results = whole_results()
    here, there = plots.throughput_bars(results, results.throughput[1])
    return {
        "bars": here[1],
        "document": there[1],
        "partitions": plots.partitions_lines(results, results.throughput[4]),
        "time": plots.interruption(TIDELOG, interruption()),
        "latency": plots.latency_curves(results, latency_rounds()),
    }


@pytest.mark.parametrize("name", ["bars", "document", "partitions", "time", "latency"])
def test_a_picture_is_well_formed_and_within_its_frame(name: str) -> None:
    root = ET.fromstring(drawings()[name])
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for shape in root.iter():
        for attribute, most in (("x", width), ("y", height), ("x2", width), ("y2", height)):
            assert 0 <= float(shape.attrib.get(attribute, 0)) <= most
    assert root.attrib["aria-label"]


def test_kills_are_marked_over_time() -> None:
    drawn = drawings()["time"]
    for words in ("kill 3, 4", "3 is back", "no leader"):
        assert words in drawn


def test_a_row_that_was_not_measured_is_said_to_be_missing() -> None:
    results = whole_results()
    results.subjects = (TIDELOG, "10.0.0.1:9092")
    here, _ = plots.throughput_bars(results, results.throughput[1])
    assert here[1].count("not measured") == 12
