"""The balance on the pane Drops is closed where a probe saw every loss, and open by what it did not see."""

from __future__ import annotations

from typing import Any

from netconsole.base import figure
from netconsole.probes.catalogue import shipped
from netconsole.snapshot import builder
from netconsole.snapshot.balance_watch import BEGINS_AFTER, BalanceWatch
from netconsole.telemetry.session import Connection
from netconsole.tui.panes.drops import balance
from netconsole.tui.scene.scene import Scene
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession

DROPS, LINKS = "kernel_drops", "link_rates"
MANIFESTS = {name: shipped(name) for name in (DROPS, LINKS)}
SHED = {"reason": "QDISC_DROP", "location": "f", "device": "eth0", "netns": "host", "protocol": "UDP"}
SOME = 500


class Played:
    """A host whose qdisc sheds packets, second by second, and whose driver loses some."""

    def __init__(self) -> None:
        begun = Scenario().hello().status(LINKS).status(DROPS).counters(DROPS, drops=(0, 0)).end()
        self._session, self._watch = PlayedSession(begun), BalanceWatch()
        for _ in range(BEGINS_AFTER):
            self._watch.update(self._session.state)
            self._session.play(Scenario().end())
        self._lost: dict[str, int] = {}
        self._seen = 0

    def lose(self, seen: int, **lost: int) -> None:
        """An interval: what the device counts as lost, and how much of it the probe saw."""
        made = Scenario()
        counts = {}
        for value, delta in lost.items():
            self._lost[value] = self._lost.get(value, 0) + delta
            counts[value] = (delta, self._lost[value])
        made.table(LINKS, "links", [{"labels": {"device": "eth0", "netns": "host", "qdisc": "tbf"}, "counts": counts}])
        if seen:
            self._seen += seen
            made.counters(DROPS, drops=(seen, self._seen))
            made.table(DROPS, "drops", [{"labels": SHED, "counts": {"count": (seen, self._seen)}}])
        self._session.play(made.end())
        self._watch.update(self._session.state)

    def settle(self) -> None:
        """Intervals in which the kernel's counters still begin anew, after a change of the filters."""
        for _ in range(BEGINS_AFTER):
            self.lose(0)

    def says(self, state: str, **more: Any) -> None:
        self._session.play(Scenario().status(DROPS, state, **more))

    def shown(self) -> tuple[str, dict[str, tuple[str, ...]]]:
        """The title, and by stage: mark, packets lost, unexplained and coverage."""
        scene = Scene(self._session.state, MANIFESTS, PROFILE, Connection("live"), balance=self._watch)
        block, columns = balance.block(), ("level", "dropped", "unexplained", "coverage")
        rows = [one.cells for one in block.rows(scene)]
        return block.title(scene), {one["stage"].text: tuple(one[name].text for name in columns) for one in rows}

    def narrowed_to(self) -> dict[str, Any] | None:
        """The filters that a snapshot has."""
        state = self._session.state
        return builder.build(state, MANIFESTS, PROFILE, builder.totals_at_start(state)).probes[DROPS].filters

    def mark(self) -> builder.Totals:
        """What a snapshot that begins now counts from."""
        return builder.totals(self._session.state)

    def written(self, since: builder.Totals | None = None) -> dict[str, tuple[int, int, float | None]]:
        """What a snapshot has: packets lost, unexplained and coverage."""
        state = self._session.state
        taken = builder.build(state, MANIFESTS, PROFILE, since or builder.totals_at_start(state))
        return {one.stage: (one.dropped, one.unexplained, one.coverage_pct) for one in taken.balance or []}

    def hidden_by(self, since: builder.Totals) -> dict[str, list[str]]:
        """What a snapshot says why."""
        taken = builder.build(self._session.state, MANIFESTS, PROFILE, since)
        return {one.stage: one.hidden_by for one in taken.balance or []}


def test_it_is_closed_where_the_probe_saw_every_loss() -> None:
    played = Played()
    played.lose(SOME, qdisc_drops=SOME)
    title, rows = played.shown()
    assert rows == {"qdisc": ("ok", "500", "0", "100")}
    assert title == "Balance · probes saw 100 % of what the kernel counts as lost"
    assert played.written() == {"qdisc": (SOME, 0, 100.0)}


def test_it_opens_by_what_is_lost_while_the_probe_is_detached() -> None:
    played = Played()
    played.lose(SOME, qdisc_drops=SOME)
    played.says("off")
    played.lose(0, qdisc_drops=SOME)
    title, rows = played.shown()
    assert rows == {"qdisc": ("!", figure.count(1000), "500", "50")}
    assert title == "Balance · probes saw 50 % of what the kernel counts as lost · kernel_drops is not attached now"
    assert played.written() == {"qdisc": (2 * SOME, SOME, 50.0)}, "what it saw before was seen"


def test_what_a_filter_hides_is_told_with_the_filter() -> None:
    played = Played()
    played.says("attached", knobs={"protocol": "tcp"})
    played.settle()
    played.lose(100, qdisc_drops=SOME)
    title, rows = played.shown()
    assert rows == {"qdisc": ("?", "500", "filtered", "20")}
    assert title.endswith("the filter by protocol hides 400")
    assert played.written() == {"qdisc": (SOME, 400, 20.0)}


def test_it_opens_by_a_reason_that_is_filtered_out_and_begins_anew_when_the_filter_goes() -> None:
    played = Played()
    played.lose(SOME, qdisc_drops=SOME)
    played.says("attached", knobs={"reason": "not:QDISC_DROP"})
    played.settle()
    played.lose(0, qdisc_drops=300)
    title, rows = played.shown()
    assert rows == {"qdisc": ("?", "300", "filtered", "0")}
    assert title.endswith("the filter by reason hides 300")
    assert played.narrowed_to() == {"reason": "not:QDISC_DROP"}
    played.says("attached", knobs={"reason": ""})
    played.settle()
    played.lose(SOME, qdisc_drops=SOME)
    assert played.shown()[1] == {"qdisc": ("ok", "500", "0", "100")}


def test_a_snapshot_does_not_know_what_the_kernel_s_counters_say_after_its_begin_and_was_seen_before() -> None:
    played = Played()
    played.lose(SOME, qdisc_drops=SOME)
    played.lose(SOME)
    since = played.mark()
    played.lose(0, qdisc_drops=SOME)
    assert played.written(since) == {"qdisc": (SOME, SOME, 0.0)}
    assert played.hidden_by(since) == {"qdisc": ["begin"]}
    since = played.mark()
    played.lose(0, qdisc_drops=SOME)
    assert played.written(since) == {"qdisc": (SOME, SOME, 0.0)}
    assert played.hidden_by(since) == {"qdisc": []}, "the last interval had no loss that was seen"


def test_a_loss_that_only_the_driver_counts_is_open() -> None:
    played = Played()
    played.lose(SOME, qdisc_drops=SOME, rx_drops=7)
    title, rows = played.shown()
    assert rows == {"device-receive": ("!", "7", "7", "0"), "qdisc": ("ok", "500", "0", "100")}
    assert title == "Balance · probes saw 98.6 % of what the kernel counts as lost"
    assert played.written() == {"device-receive": (7, 7, 0.0), "qdisc": (SOME, 0, 100.0)}
