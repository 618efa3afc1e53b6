"""Time lines are SVG that a browser reads, and every value in them can be found again."""

from xml.etree import ElementTree

import pytest

from tidelog.lab.timeline_picture import (
    WIDTH_MAX,
    WIDTH_MIN,
    Lane,
    Mark,
    Picture,
    Rate,
    Span,
    clock_text,
    draw,
    legend,
    nice_step,
)


def span(start_s: float, end_s: float, kind: str = "up", label: str = "") -> Span:
    return Span(start_s=start_s, end_s=end_s, kind=kind, title=f"{kind} <&> {start_s}", label=label)


def picture(length_s: float = 10.0, *spans: Span) -> Picture:
    lane = Lane(name="broker 1", kind="l1", spans=spans, above=[], below=[])
    return Picture(
        length_s=length_s,
        marks=[Mark(at_s=2.0, kind="down", label="1", title="fault 1")],
        groups=[[lane], []],
        rates=[Rate(0.0, 5.0, 100.0), Rate(5.0, 10.0, 50.0)],
        rates_name="records/s",
    )


def plot(drawn: str) -> ElementTree.Element:
    """The second of the two drawings."""
    found = ElementTree.fromstring(drawn).find("div/svg")
    assert found is not None
    return found


def rectangles(drawn: str, kind: str) -> list[tuple[float, float]]:
    """Left edges and widths."""
    return [
        (float(each.attrib["x"]), float(each.attrib["width"]))
        for each in plot(drawn).iter("rect")
        if each.get("class") == kind
    ]


def test_spans_stand_where_their_times_are() -> None:
    drawn = draw(picture(10.0, span(0, 5), span(5, 7.5, "down")), label="x")
    (left, width) = rectangles(drawn, "down")[0]
    assert left == pytest.approx((WIDTH_MIN - 1) / 2, abs=0.1)
    assert width == pytest.approx((WIDTH_MIN - 1) / 4, abs=0.1)


def test_a_moment_is_wide_enough_to_be_seen() -> None:
    ((_, width),) = rectangles(draw(picture(10.0, span(3, 3, "expire")), label="x"), "expire")
    assert width >= 1


def test_what_lies_outside_is_drawn_at_the_edge() -> None:
    ((left, width),) = rectangles(draw(picture(10.0, span(-5, 50)), label="x"), "up")
    assert (left, width) == (0, WIDTH_MIN - 1)


def test_titles_and_labels_are_text_whatever_is_in_them() -> None:
    drawn = draw(picture(10.0, span(0, 9, label="<b>")), label='"quoted"')
    titles = [each.text for each in plot(drawn).iter("title")]
    assert "up <&> 0" in titles
    assert "<b>" in [each.text for each in plot(drawn).iter("text")]


def test_a_label_without_room_is_left_out() -> None:
    drawn = draw(picture(10.0, span(0, 0.2, label="killed")), label="x")
    assert "killed" not in drawn


def test_long_runs_are_wider_up_to_a_bound() -> None:
    widths = [
        float(plot(draw(picture(length_s), label="x")).attrib["width"])
        for length_s in (1.0, 600.0, 1e6)
    ]
    assert widths == [WIDTH_MIN, 2_400.0, WIDTH_MAX]


def test_nothing_at_all_is_drawn_too() -> None:
    empty = Picture(length_s=0.0, marks=[], groups=[], rates=[], rates_name="records/s")
    assert plot(draw(empty, label="x")).tag == "svg"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.5, "0.5 s"), (59, "59 s"), (65, "1:05"), (3605, "1:00:05")]
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


@pytest.mark.parametrize(("rough", "step"), [(0.3, 0.5), (1, 1), (1.1, 2), (7, 10), (120, 200)])
def test_steps_are_round(rough: float, step: float) -> None:
    assert nice_step(rough) == pytest.approx(step)


def test_legend_names_each_colour() -> None:
    shown = ElementTree.fromstring(legend([("up", "up & well"), ("down", "down")]))
    assert ["".join(each.itertext()) for each in shown] == ["up & well", "down"]
