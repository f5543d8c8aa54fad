"""What cells of panes say, from figures alone: flows, shares of stages, the balance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.profile.profile import Profile
from netconsole.snapshot.document import BalanceData
from netconsole.telemetry import frames
from netconsole.telemetry.example import flow_text
from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import index
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import State
from netconsole.tui.panes.common.stages import share, side_by_side
from netconsole.tui.panes.drops import balance
from netconsole.tui.panes.drops.places import ends
from netconsole.tui.scene.scene import Scene
from tests.unit.telemetry.test_state import Stream

ENDS = {"source": "10.9.0.1", "source_port": 4000, "target": "10.9.0.2", "target_port": 53}


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"protocol": "UDP", **ENDS, "vlan": 7}, "UDP 10.9.0.1:4000 → 10.9.0.2:53 vlan 7"),
        ({"protocol": "UDP", **ENDS, "source_port": 0, "vlan": 0}, "UDP 10.9.0.1 → 10.9.0.2:53"),
        ({"source": "2001:db8::1", "source_port": 5, "target": "2001:db8::2"}, "[2001:db8::1]:5 → 2001:db8::2"),
        ({"protocol": "ICMP", "source": "::", "target": "10.9.0.2"}, "ICMP 10.9.0.2"),
        ({"protocol": "none", "ethertype": "ARP", "source": "", "target": None}, "ARP"),
        ({"protocol": "", "ethertype": 2054, "vlan": 3}, "2054 vlan 3"),
        ({"protocol": None, "ethertype": ""}, "–"),
        ({"protocol": "x" * 70}, f"{'x' * 64}…"),
        ({"source": "a\x1b", "source_port": "1" * 20, "vlan": "v" * 20}, f"a\\x1b:{'1' * 12}… vlan {'v' * 12}…"),
    ],
)  # fmt: skip
def test_a_flow_in_few_characters(labels: dict[str, Any], text: str) -> None:
    assert flow_text(labels) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 100, "0 %"), (0.9, 100, "< 1 %"), (1, 100, "1 %"), (49.6, 100, "50 %"), (100, 100, "100 %"), (5, 0, "–")],
)
def test_a_share_is_whole_percent(part: float, whole: float, text: str) -> None:
    assert share(part, whole) == text


def test_stages_stand_side_by_side_with_their_share_of_the_whole() -> None:
    """Of 4 us, three in the first stage."""

    def samples(ns: int) -> Buckets:
        return Buckets(count=2, sum=ns, min=ns, max=ns, buckets=[(index(ns), 2)])

    def drawn(width: int, whole: Buckets | None = samples(4000)) -> list[str]:  # noqa: B008
        found = {"lookup": samples(3000), "actions": samples(1000)}
        return [
            "".join(text for text, _ in line) for line in side_by_side(found, whole, "ns", {"lookup": "to flow"}, width)
        ]

    narrow, wide = drawn(20), drawn(200)
    assert [line.split() for line in narrow[:2]] == [["lookup", "actions"], ["to", "flow"]]
    assert (narrow[0].index("actions"), wide[0].index("actions")) == (2 + 15, 2 + 25)
    assert [[word for word in line.split() if word[0] == "p"] for line in narrow[2:4]] == [["p50"] * 2, ["p99"] * 2]
    assert narrow[4].split() == ["75", "%", "of", "time", "25", "%", "of", "time"]
    assert drawn(20, None)[4].split() == ["–", "of", "time", "–", "of", "time"]
    assert narrow[-1] == "" and all("< " in line for line in narrow[5:-1])


def lost(**row: Any) -> BalanceData:
    return msgspec.convert({"stage": "qdisc", **row}, BalanceData)


@pytest.mark.parametrize(
    ("row", "level", "place", "unexplained"),
    [
        ({"device": "eth0", "unexplained": 1500}, "!", "eth0", "1\u202f500"),
        ({"device": "eth0", "netns": "blue", "coverage_pct": 99.9}, "ok", "eth0 (netns blue)", "0"),
        ({"device": "eth0", "netns": "host", "coverage_pct": 99.89}, "!", "eth0", "0"),
        ({"netns": "blue", "coverage_pct": 9.0, "hidden_by": ["mac"], "unexplained": 5}, "?", "netns blue", "filtered"),
        ({"netns": "blue", "hidden_by": ["unlisted"], "unexplained": 5}, "?", "netns blue", "unknown"),
        ({"netns": "blue", "hidden_by": ["mac", "unlisted"], "unexplained": 5}, "?", "netns blue", "filtered"),
        ({"stage": "backlog"}, "!", "all CPUs", "0"),
        ({}, "!", "host", "0"),
    ],
)  # fmt: skip
def test_a_line_of_the_balance(row: dict[str, Any], level: str, place: str, unexplained: str) -> None:
    cells = balance._cells(lost(**row))
    assert [cells[name].text for name in ("level", "place", "unexplained")] == [level, place, unexplained]
    assert cells["place"].ends == (("eth0", " (blue)") if "(" in place else None)


def test_each_figure_of_the_balance_has_its_column() -> None:
    whole = lost(**{"in": 4000, "out": 3000, "dropped": 1000, "unexplained": 250, "coverage_pct": 75.0})
    cells = balance._cells(whole)
    shown = {name: cells[name].text for name in ("stage", "entered", "left", "dropped", "unexplained", "coverage")}
    assert shown == {
        "stage": "qdisc", "entered": "4.00k", "left": "3.00k", "dropped": "1\u202f000", "unexplained": "250",
        "coverage": "75",
    }  # fmt: skip
    assert [cells[name].sort for name in ("entered", "left", "dropped", "unexplained", "coverage")] == [
        4000, 3000, 1000, 250, 75.0,
    ]  # fmt: skip


def test_the_title_of_the_balance_says_what_was_seen_and_why_not_all() -> None:
    rows = [lost(dropped=300, unexplained=100), lost(dropped=50, unexplained=50, hidden_by=["netns", "reason"])]
    assert balance._title(rows[:1], False) == "Balance · probes saw 66.7 % of what the kernel counts as lost"
    assert balance._title(rows, True).endswith(
        " · kernel_drops is not attached now · the filter by netns, reason hides 50"
    )
    assert balance._title([], True) == "Balance"
    unknown = [*rows[:1], lost(dropped=50, unexplained=40, hidden_by=["unlisted"])]
    assert balance._title(unknown, False).endswith(" · 40 more are unknown: kernel_drops has as many in no row")


def test_a_place_with_a_namespace_has_two_ends() -> None:
    assert ends("qdisc eth0 (netns blue)") == ("qdisc eth0", " (blue)")
    assert ends("qdisc eth0") is None


@pytest.mark.parametrize(("status", "mode", "said"), [
    ("attached", "counters", "kernel_drops counts alone: there is nothing to compare"),
    ("attached", "summary", "the kernel has counted no loss since the probes began"),
    ("off", "counters", "the kernel has counted no loss since the probes began"),
    (None, "", "the kernel has counted no loss since the probes began"),
])  # fmt: skip
def test_why_the_balance_has_no_line(status: Any, mode: Any, said: str) -> None:
    stream = Stream(State())
    stream.hello()
    if status is not None:
        stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state=status, mode=mode))
    assert balance._note(Scene(stream.state, {}, Profile("summary"), Connection("live"))) == said


def test_bars_of_a_stage_are_to_the_scale_of_its_longest() -> None:
    """Four samples at 100 ns, one at 110: a column of 25 has 9 for the time, and 14 for the bar."""
    found = {"lookup": Buckets(5, 510, 100, 110, [(index(100), 4), (index(110), 1)])}
    drawn = ["".join(text for text, _ in line) for line in side_by_side(found, None, "ns", {}, 80)]
    bars = [line for line in drawn if "█" in line]
    assert len(bars) == 2 and [line.count("█") for line in bars] == [14, 3]
    assert bars[0][:11].strip().startswith("< ") and bars[0].index("█") == 2 + 9 + 1
    many = {"lookup": Buckets(40, 40, 8, 10_000, [(index(8) + n, 1) for n in range(40)])}
    drawn = ["".join(text for text, _ in line) for line in side_by_side(many, None, "ns", {}, 80)]
    assert len([line for line in drawn if "█" in line]) == 10
