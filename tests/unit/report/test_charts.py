"""Charts are drawn where their figures belong: worked examples on a canvas of 640 by 174, with 8 free at each side.

Bars stand on a line at 140 and are at most 94 high; the axis is 624 long.
"""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from netconsole.report.blocks import Bars, Curve, ScaledBar, ScaledPath
from netconsole.report.formats.to_html import bars, curve, scaled

LEFT, RIGHT, BASE, HIGHEST = 8.0, 632.0, 140.0, 94.0


def drawn(text: str, kind: str) -> list[ElementTree.Element]:
    """All elements of a kind, in their order."""
    return list(ElementTree.fromstring(text).iter(kind))


def numbers(element: ElementTree.Element, *names: str) -> tuple[float, ...]:
    return tuple(float(element.attrib[name]) for name in names)


def rectangles(text: str) -> list[tuple[float, ...]]:
    return [numbers(one, "x", "y", "width", "height") for one in drawn(text, "rect")]


def lines(text: str) -> list[tuple[float, ...]]:
    return [numbers(one, "x1", "y1", "x2", "y2") for one in drawn(text, "line")]


def labels(text: str) -> dict[str, tuple[float, ...]]:
    return {one.text or "": numbers(one, "x", "y") for one in drawn(text, "text")}


def test_bars_stand_on_a_logarithmic_axis() -> None:
    """Of the first bucket, which begins at 0, the upper half. An empty one and one below zero are not drawn."""
    text = bars(Bars("a title", "", [(-4.0, 0.0, 5), (0.0, 2.0, 10), (2.0, 4.0, 40), (4.0, 6.0, 0), (6.0, 8.0, 0)]))
    assert rectangles(text) == [(8.0, 116.5, 311.5, 23.5), (320.0, 46.0, 311.5, 94.0)]
    assert lines(text) == [(8, 140, 632, 140), (8, 140, 8, 144), (320, 140, 320, 144), (632, 140, 632, 144)]
    assert labels(text) == {"1": (8, 156), "2": (320, 156), "4": (632, 156), "55 samples": (8, 171)}
    anchors = [one.attrib.get("text-anchor") for one in drawn(text, "text")]
    assert anchors == ["middle", "middle", "middle", None]
    assert drawn(text, "figcaption")[0].text == "a title" == drawn(text, "svg")[0].attrib["aria-label"]
    assert drawn(text, "svg")[0].attrib["viewBox"] == "0 0 640 174"


def test_a_bucket_of_half_the_width_with_as_many_samples_is_twice_as_high() -> None:
    text = bars(Bars("", "", [(4.0, 8.0, 10), (8.0, 8.0 * math.sqrt(2), 10)]))
    wide, narrow = rectangles(text)
    assert wide == (8.0, 93.0, 415.5, 47.0) and narrow == (424.0, 46.0, 207.5, 94.0)


def test_a_bucket_is_never_too_narrow_to_be_seen() -> None:
    text = bars(Bars("", "", [(1.0, 1.001, 1), (1e6, 2e6, 1)]))
    assert rectangles(text)[0][2] == 1.0


@pytest.mark.parametrize("buckets", [[], [(0.0, 8.0, 0)], [(-2.0, -1.0, 3)], [(0.0, 0.0, 3)], [(0.0, 1e-9, 3)]])
def test_where_nothing_was_measured_nothing_is_drawn(buckets: list[tuple[float, float, int]]) -> None:
    assert bars(Bars("", "ns", buckets)) == ""


@pytest.mark.parametrize(
    ("first", "last", "unit", "ticks"),
    [
        (1.0, 8.0, "", ["1", "2", "4", "8"]),
        (1.0, 9.0, "", ["1", "2", "4", "8"]),
        (1.0, 10.0, "", ["1", "10"]),
        (10.0, 99.0, "", ["16", "32", "64"]),
        (1.0, 1e5, "", ["1", "10", "100", "1.00k", "10.0k", "100k"]),
        (1.0, 1e6, "", ["1", "100", "10.0k", "1.00M"]),
        (5.0, 7.0, "", ["5", "7"]),
        (1000.0, 1e6, "ns", ["1 us", "10 us", "100 us", "1 ms"]),
        (1.0, 10.0, "packets", ["1 packets", "10 packets"]),
    ],
)
def test_ticks_are_powers_of_ten_or_of_two_or_the_ends(first: float, last: float, unit: str, ticks: list[str]) -> None:
    text = bars(Bars("", unit, [(first, first * 1.2, 1), (last / 1.1, last, 1)]))
    assert [one.text for one in drawn(text, "text")][:-1] == ticks


def test_a_label_at_the_edge_is_not_cut() -> None:
    text = bars(Bars("", "packets", [(1.0, 2.0, 1), (50.0, 100.0, 1)]))
    anchors = {one.text: one.attrib.get("text-anchor") for one in drawn(text, "text")}
    assert anchors == {"1 packets": "start", "10 packets": "middle", "100 packets": "end", "2 samples": None}


def test_percentiles_are_marked_and_each_label_has_room() -> None:
    """A letter takes 7, a line 12. What lies outside of the buckets is marked at their end."""
    marks = {"p99": 16.0, "p50": 2.0, "p90": 2.2, "p999": 99.0, "p1": 0.1}
    text = bars(Bars("", "", [(1.0, 2.0, 1), (8.0, 16.0, 1)], marks))
    at = 8 + 624 * math.log(2.2) / math.log(16)
    marked = [one for one in drawn(text, "line") if one.attrib.get("class") == "mark"]
    assert [numbers(one, "x1", "y1", "x2", "y2") for one in marked] == [
        (8.0, 40, 8.0, 140),
        (164.0, 40, 164.0, 140),
        (round(at, 1), 28, round(at, 1), 140),
        (632.0, 40, 632.0, 140),
        (632.0, 28, 632.0, 140),
    ]
    assert {name: place for name, place in labels(text).items() if name.startswith("p")} == {
        "p1 0.1": (10.0, 38),
        "p50 2": (166.0, 38),
        "p90 2.20": (round(at + 2, 1), 26),
        "p99 16": (640 - 7 * 6, 38),
        "p999 99": (640 - 7 * 7, 26),
    }


def test_a_curve_starts_at_zero_and_a_gap_stays_a_gap() -> None:
    text = curve(Curve("a <title>", "packets", [0.0, 5.0, None, 10.0, None]))
    assert [one.attrib["points"] for one in drawn(text, "polyline")] == [
        "8.0,140.0 164.0,93.0",
        "476.0,46.0 476.0,46.0",
    ]
    assert lines(text) == [(LEFT, BASE, RIGHT, BASE)]
    assert labels(text) == {"largest 10 packets": (8, 38), "5 intervals, from 0": (8, 156)}
    assert drawn(text, "figcaption")[0].text == "a <title>"


@pytest.mark.parametrize(("unit", "said"), [("ns", "largest 2.50 ms"), ("ns/s", "largest 2.50 ms/s")])
def test_a_curve_of_times_says_them_in_the_unit_that_is_easiest_to_read(unit: str, said: str) -> None:
    assert said in labels(curve(Curve("", unit, [1000.0, 2.5e6])))


def test_a_curve_of_zeros_lies_on_its_axis_and_one_value_is_a_point() -> None:
    flat = curve(Curve("", "", [0.0, 0.0]))
    assert drawn(flat, "polyline")[0].attrib["points"] == "8.0,140.0 632.0,140.0"
    point = curve(Curve("", "", [3.0]))
    assert drawn(point, "polyline")[0].attrib["points"] == "8.0,46.0 8.0,46.0"
    assert curve(Curve("", "", [None, None])) == "" == curve(Curve("", "", []))


def test_stretches_of_a_way_are_drawn_to_one_scale() -> None:
    """540 for all of them, behind names that take 250; what is below zero goes to the left."""
    way = [
        ScaledBar("wire", "eth0", 30.0, "30", "60 %"),
        ScaledBar("host", "", None, "?"),
        ScaledBar("rest", "", -10.0, "-10", measured=False),
        ScaledBar("rest", "here", 20.0, "20", measured=False),
        ScaledBar("none", "", 0.0, "0"),
    ]
    text = scaled(ScaledPath("a <way>", "us", way))
    zero = 250 + 540 * 10 / 40
    assert rectangles(text) == [
        (zero, 6, 405, 15),
        (250, 46, 135, 15),
        (zero, 66, 270, 15),
        (zero, 86, 0.5, 15),
    ]
    assert [one.attrib.get("class") for one in drawn(text, "rect")] == [None, "below", "rest", None]
    assert [(one.text, *numbers(one, "x", "y")) for one in drawn(text, "text")] == [
        ("wire  eth0", 0, 18),
        ("30 us  60 %", zero + 405 + 4, 18),
        ("host  ", 0, 38),
        ("not known", zero + 4, 38),
        ("rest  ", 0, 58),
        ("-10 us", zero + 4, 58),
        ("rest  here", 0, 78),
        ("20 us", zero + 270 + 4, 78),
        ("none  ", 0, 98),
        ("0 us", zero + 4, 98),
    ]
    assert lines(text) == [(zero, 0, zero, 106)]
    assert drawn(text, "svg")[0].attrib["viewBox"] == "0 0 900 110"
    assert drawn(text, "svg")[0].attrib["aria-label"] == "a <way>" == drawn(text, "figcaption")[0].text


def test_a_way_of_which_nothing_is_known_is_not_drawn_and_one_without_length_is() -> None:
    assert scaled(ScaledPath("", "us", [ScaledBar("host", "", None, "?")])) == "" == scaled(ScaledPath("", "us", []))
    assert rectangles(scaled(ScaledPath("", "us", [ScaledBar("host", "", 0.0, "0")]))) == [(250, 6, 0.5, 15)]
    assert rectangles(scaled(ScaledPath("", "us", [ScaledBar("host", "", 7.0, "7")]))) == [(250, 6, 540, 15)]
