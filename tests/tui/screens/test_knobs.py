"""Knobs of a running probe: checked, forecast, refused; probes that are switched off and on there."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from textual import events
from textual.widgets import Input

from netconsole.base.errors import Unable
from netconsole.probes.catalogue import load_all
from netconsole.probes.knobs import hint
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import ProbeChoice
from netconsole.telemetry import frames
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.screens import knobs as form_of_knobs
from netconsole.tui.screens.main import MainScreen
from netconsole.tui.widgets.choice import Choice
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.running import Running, running
from tests.support.tui.scenes import host


async def test_knobs_are_checked_as_in_a_profile_and_set_on_the_running_probe() -> None:
    async with running() as one:
        one.main.turn_to(one.table("kernel_drops-drops"))
        text = await one.press("e")
        assert "Knobs of kernel_drops" in text and "device" in text and "events_per_s" in text
        form = one.app.screen
        form.query_one("#knob-port", Input).value = "99999"
        text = await one.press("enter")
        assert "port: expected a whole number from 0 to 65535, P,Q or from:P,to:Q, found 99999" in text
        assert one.session.asked == []
        form.query_one("#knob-port", Input).value = "443"
        form.query_one("#knob-mode", Choice).choose("details")
        text = await one.press("enter")
        assert "applied to the running probe" in text
        ((probe, mode, knobs),) = one.session.asked
        assert (probe, mode) == ("kernel_drops", "details")
        assert knobs is not None and knobs["port"] == 443
        await one.press("escape")
        assert isinstance(one.app.screen, MainScreen)


async def test_what_is_typed_at_once_after_an_arrow_belongs_into_the_next_knob() -> None:
    """As on a slow host or line: all keys are there before the first field has seen one."""
    async with running() as one:
        one.main.turn_to(one.table("kernel_drops-drops"))
        await one.press("e")
        form = one.app.screen
        boxes = list(form.query(Input))[:3]
        before = [box.value for box in boxes]
        boxes[0].focus()
        await one.settled()
        for key in ("1", "down", "2", "down", "3", "up", "4"):
            one.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await one.settled()
        assert [box.value.removeprefix(was) for box, was in zip(boxes, before, strict=True)] == ["1", "24", "3"]


async def test_a_namespace_is_given_by_its_name_and_the_first_key_replaces_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(form_of_knobs, "namespace_inode", {"uxb": 4026532469}.get)
    monkeypatch.setattr(form_of_knobs, "names_of", lambda inode: ({str(inode), "uxb"}, False))
    async with running() as one:
        manifest = one.app.manifests["kernel_drops"]
        one.app.watched.manifests = {"kernel_drops": replace(manifest, knobs={**manifest.knobs, "netns": 0})}
        one.main.turn_to(one.table("kernel_drops-drops"))
        await one.press("e")
        field = one.app.screen.query_one("#knob-netns", Input)
        field.focus()
        await one.press(*"uxb")
        assert field.value == "uxb"
        assert "applied to the running probe" in await one.press("enter")
        ((_, _, knobs),) = one.session.asked
        assert knobs is not None and knobs["netns"] == 4026532469
        assert form_of_knobs.KnobsScreen._shown(one.app.screen, "netns", 4026532469) == "uxb"  # type: ignore[arg-type]
        field.value = "nowhere"
        assert "netns: expected a whole number" in await one.press("enter")


async def test_a_refusal_of_the_collector_is_told() -> None:
    async with running() as one:
        one.session.refuse = "the map is gone \x1b[2J"
        one.main.turn_to(one.table("kernel_drops-drops"))
        text = await one.press("e", "enter")
        assert "refused: the map is gone \\x1b[2J" in text


async def test_a_mode_is_chosen_from_a_list_and_the_help_of_a_knob_is_whole() -> None:
    async with running(size=(80, 24)) as one:
        one.main.turn_to(one.table("kernel_drops-drops"))
        text = await one.press("e")
        assert "[summary] details" in text and "details samples single events as well" in " ".join(text.split())
        assert "[details]" in await one.press("right")
        for name, default in one.app.manifests["kernel_drops"].knobs.items():
            one.app.screen.query_one(f"#knob-{name}").focus()
            text = " ".join((await one.press()).split())
            assert f"{name}: {hint(name, default)}" in text
        await one.press("enter")
        assert [(probe, mode) for probe, mode, _ in one.session.asked] == [("kernel_drops", "details")]


async def test_what_is_dearer_is_forecast_first_and_asked_for_again_when_it_is_over_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The played probes run nowhere, so none of them is dear.
    monkeypatch.setattr(form_of_knobs, "is_costly", lambda manifest, mode: mode == "details")
    async with running() as one:
        above: list[str | None] = ["3 % of one core in total, the budget is 2 %", None]

        def look(manifest: Manifest, mode: frames.Mode, knobs: object) -> tuple[str, str | None]:
            return f"{manifest.name} in {mode}: ≈ 420 ns", above.pop(0)

        one.app._forecaster = lambda: look  # type: ignore[method-assign]
        one.main.turn_to(one.table("kernel_drops-drops"))
        await one.press("e")
        form = one.app.screen
        form.query_one("#knob-mode", Choice).choose("details")
        await one.press("enter")
        await one.app.workers.wait_for_complete()
        text = " ".join((await one.press()).split())
        assert (
            "over the budget: 3 % of one core in total, the budget is 2 %; press Enter again" in text
            and "≈ 420 ns" in text
        )
        assert one.session.asked == []
        assert "applied" in await one.press("enter")
        assert [(probe, mode) for probe, mode, _ in one.session.asked] == [("kernel_drops", "details")]
        form.query_one("#knob-events_per_s", Input).value = "50"  # something else: to be forecast again
        await one.press("enter")
        await one.app.workers.wait_for_complete()
        assert "kernel_drops in details: ≈ 420 ns" in await one.press()
        assert len(one.session.asked) == 2 and not above


async def test_a_probe_is_switched_off_where_its_knobs_are() -> None:
    async with running() as one:
        one.main.turn_to(one.table("kernel_drops-drops"))
        await one.press("e")
        one.app.screen.query_one("#knob-mode", Choice).choose("off")
        assert "applied" in await one.press("enter")
        assert one.session.asked == [("kernel_drops", "off", None)]


async def test_a_probe_that_is_off_is_loaded_again_where_its_knobs_are() -> None:
    async with running() as one:
        stamp: dict[str, Any] = {"mono_ns": 0, "wall_ns": 0, "mode": "summary"}
        one.session.take(frames.Status(seq=10_000, probe="kernel_drops", state="off", **stamp))
        one.main.turn_to(one.table("kernel_drops-drops"))
        await one.press("e")
        one.app.screen.query_one("#knob-mode", Choice).choose("details")
        one.app.screen.query_one("#knob-port", Input).value = "443"
        assert "applied" in await one.press("enter")
        ((probe, mode, knobs),) = one.session.reloaded
        assert (probe, mode) == ("kernel_drops", "details") and knobs is not None and knobs["port"] == 443
        assert one.session.asked == []


async def test_a_probe_that_the_session_lacks_is_started_where_its_knobs_are() -> None:
    async with running() as one:
        lacking = "socket_drops"
        del one.session.state.probes[lacking]
        begun: list[tuple[str, ProbeChoice]] = []
        done: Future[None] = Future()

        def begin(manifest: Manifest, wanted: ProbeChoice) -> Future[None]:
            begun.append((manifest.name, wanted))
            if len(begun) == 1:
                raise Unable("needs root")
            done.set_result(None)
            return done

        one.app.watched.enforcer = SimpleNamespace(  # type: ignore[assignment]
            actions=(),
            pinned=frozenset(),
            lowered=(),
            profile=PROFILE,
            forecast_now=None,
            begin=begin,
            governs=lambda _: False,
            is_read=int,
        )
        titles = {entry.name for entry in one.app.findable(one.app.screen)}
        assert f"Start {lacking}" in titles
        one.app.action_knobs(lacking)
        text = await one.press()
        assert f"Knobs of {lacking}" in text and "set a mode to start it" in text
        mode = one.app.screen.query_one("#knob-mode", Choice)
        assert mode.value == "off" and "the probe does not run" in await one.press("enter")
        mode.choose("summary")
        assert "refused: needs root" in await one.press("enter")
        assert "applied" in await one.press("enter")
        assert [(name, wanted.mode) for name, wanted in begun] == [(lacking, "summary")] * 2
        one.app.watched.enforcer = None


async def test_an_empty_pane_opens_the_knobs_of_its_own_probe_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    session = PlayedSession(host(12))
    told = SimpleNamespace(actions=(), pinned=frozenset(), lowered=(), profile=PROFILE, forecast_now=None, begin=None)
    told.on_action, told.is_read = lambda _: None, int
    app = ConsoleApp(WatchedHost(session, PROFILE, load_all(), enforcer=told))  # type: ignore[arg-type]
    offered = ["flow_top", "host_path"]
    monkeypatch.setattr(app.watched, "startable", lambda: offered)
    async with app.run_test(size=(120, 40)) as pilot:
        one = Running(app, pilot, session)
        assert "Knobs of host_path" in await one.press("9", "e")
        assert "Knobs of flow_top" in await one.press("escape", "0", "e")
        offered.clear()
        text = await one.press("escape", "9", "e")
        assert isinstance(app.screen, MainScreen)
        assert "host_path: not in profile" in text and "it cannot be started here" in text.splitlines()[-1]


@pytest.mark.parametrize(("now", "wanted", "is_dearer"), [(4, 100, True), (100, 4, False), (50, 50, False)])
async def test_to_see_more_of_the_time_is_dearer(
    now: int, wanted: int, is_dearer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(form_of_knobs, "is_costly", lambda manifest, mode: True)
    async with running() as one:
        one.main.turn_to(one.table("kernel_drops-drops"))
        await one.press("e")
        form = one.app.screen
        assert isinstance(form, form_of_knobs.KnobsScreen)
        stamp: dict[str, Any] = {"seq": 1, "mono_ns": 0, "wall_ns": 0, "probe": "kernel_drops"}
        with one.session.view() as state:
            state.apply(frames.Status(**stamp, state="attached", mode="summary", knobs={"seen_pct": now}))
        assert form._costs_more(ProbeChoice("summary", knobs={"seen_pct": wanted})) is is_dearer


async def test_what_is_not_at_its_default_says_so_and_who_changed_it() -> None:
    async with running() as one:
        probe = one.session.state.probes["kernel_drops"]
        probe.knobs = {**one.app.manifests["kernel_drops"].knobs, "events_per_s": 7, "port": 53}
        probe.why = "samples 7 events a second: the kernel's share of a core was over its limit"
        one.main.turn_to(one.table("kernel_drops-drops"))
        text = await one.press("e")
        assert "netconsole changed it: samples 7 events a second" in text
        assert "100 by default; budget of sampled events" in text
        assert " 0 by default" not in text, "a filter is the user's"
