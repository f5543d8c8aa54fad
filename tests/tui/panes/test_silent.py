"""Where nothing is shown: why, and a way out that leads somewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from netconsole.probes.catalogue import load_all
from netconsole.profile import loader
from netconsole.profile.profile import ProbeChoice, Profile
from netconsole.recording.replay_session import Position
from netconsole.telemetry import frames
from netconsole.telemetry.session import Connection
from netconsole.tui.panes import catalogue
from netconsole.tui.panes.common.tables import table_block
from netconsole.tui.scene import silent
from netconsole.tui.scene.scene import Scene
from netconsole.tui.scene.silent import why_absent, why_silent
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PlayedSession

MANIFESTS = load_all()
WAITS = "tx_queue_latency"


def scene(scenario: Scenario | None = None, profile: Profile | None = None, **more: Any) -> Scene:
    session = PlayedSession((scenario or Scenario().hello()).end())
    return Scene(session.state, MANIFESTS, profile or Profile("drops"), Connection("live"), **more)


REPLAY = cast(Position, object())


def test_the_profile_that_has_a_probe_is_named_and_the_key_that_starts_it() -> None:
    said = why_silent(scene(), WAITS)
    assert said == f"{WAITS}: not in profile drops; profile summary has it; e starts it" and len(said) < 80
    assert why_absent(scene(profile=Profile("summary")), "host_path") == (
        "not in profile summary; profile latency has it"
    )
    assert why_absent(scene(), "echo_host") == "not in profile drops"
    assert why_absent(scene(), "irq_path", "vhost") == "not in profile drops; profile vhost has it"


def test_every_profile_that_is_named_has_the_probe() -> None:
    found = {probe: silent.profile_with(probe, MANIFESTS) for probe in MANIFESTS}
    for probe, name in found.items():
        assert not name or loader.load(name, MANIFESTS).probes[probe].mode in ("summary", "details")
    assert found["kernel_drops"] == "summary" and found["conntrack"] == "conntrack"
    assert silent.profile_with(WAITS, {WAITS: MANIFESTS[WAITS]}) == "", "no profile can be read without its probes"


def test_what_the_profile_has_and_was_left_out_is_no_matter_of_profiles() -> None:
    chosen = Profile("summary", probes={WAITS: ProbeChoice("summary"), "softnet": ProbeChoice("off")})
    assert why_silent(scene(profile=chosen), WAITS) == f"{WAITS}: left out at the start; e starts it"
    assert why_absent(scene(profile=chosen), "softnet").startswith("not in profile summary")


@pytest.mark.parametrize(("why", "said"), [(None, "switched off"), ("over the budget", "over the budget")])
def test_what_was_switched_off_can_be_started_again(why: str | None, said: str) -> None:
    off = Scenario().hello().status(WAITS, "off", why=why)
    assert why_silent(scene(off), WAITS) == f"{WAITS}: {said}; e starts it"
    assert why_silent(scene(off), WAITS, way_out="") == f"{WAITS}: {said}"


def test_no_key_is_advised_where_nobody_may_load_a_program() -> None:
    why = "netconsole needs root: run netconsole with sudo"
    one = scene()
    one.state.capabilities["privileges"] = frames.Capability(ok=False, why=why)
    assert why_silent(one, WAITS) == f"{WAITS}: {why}"
    assert why_silent(one, "softnet").endswith("; e starts it"), "it needs no program"


def test_a_recording_cannot_be_changed_so_no_key_is_advised() -> None:
    one = scene(replay=REPLAY)
    assert why_silent(one, WAITS) == f"{WAITS}: not in this recording"
    path = catalogue.panes(MANIFESTS, ())["path"]
    assert catalogue.missing(one, path) == "Path: not in this recording."
    refused = scene(Scenario().hello().status("host_path", "unsupported", why="no kprobes"), replay=REPLAY)
    assert catalogue.missing(refused, path) == "host_path is unsupported: no kprobes."


def test_a_pane_whose_first_probe_is_away_is_empty_while_the_others_have_no_row() -> None:
    disk = catalogue.panes(MANIFESTS, ("io_limits",))["disk"]
    assert disk.probes[0] == "block_path"
    idle = Scenario().hello().status("io_limits")
    said = "Disk: not in profile summary; profile disk has it. io_limits: nothing so far."
    assert catalogue.missing(scene(idle, Profile("summary")), disk) == f"{said} {catalogue.DOCTOR}"
    row = {"labels": {"device": "vda", "vm": "web-07"}, "counts": {"passed": (1, 1)}}
    limited = Scenario().hello().status("io_limits").table("io_limits", "limits", [row])
    assert catalogue.missing(scene(limited), disk) == ""
    assert catalogue.missing(scene(Scenario().hello().status("io_limits").status("block_path")), disk) == ""
    over = "its ten minutes are over"
    ended = Scenario().hello().status("io_limits").status("block_path", "off", why=over)
    assert over in catalogue.missing(scene(ended), disk)


def test_an_empty_pane_says_that_nobody_may_load_a_program() -> None:
    one = scene(profile=Profile("summary"))
    one.state.capabilities["privileges"] = frames.Capability(ok=False, why="netconsole needs root")
    flows = catalogue.panes(MANIFESTS, ())["flows"]
    assert catalogue.missing(one, flows).startswith("Flows: netconsole needs root.")


def test_a_table_of_another_mode_says_how_to_fill_it() -> None:
    block = table_block(MANIFESTS[WAITS], "refused")
    one = scene(Scenario().hello().status(WAITS))
    assert block.note(one) == f"not watched in mode summary, to save cost; press e and set {WAITS} to details"
    assert block.note(replace(one, replay=REPLAY)) == "not watched in mode summary, to save cost"
