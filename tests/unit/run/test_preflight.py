"""Before probes start: an interface that is not there is said, and is no error."""

from __future__ import annotations

import pytest

from netconsole.host import door
from netconsole.host.collector_process import Unanswered
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.profile.profile import Profile
from netconsole.run import preflight
from netconsole.run.preflight import RunPlan


@pytest.mark.parametrize("filters", [{}, {"port": 53}, {"device": ""}, {"device": "lo"}])
def test_nothing_is_said_of_an_interface_that_is_there_or_of_none(
    filters: dict[str, str | int], capsys: pytest.CaptureFixture[str]
) -> None:
    preflight.before_start(RunPlan(Profile("p", filters=filters), {}, []))
    assert capsys.readouterr().err == ""


def test_a_name_that_no_interface_has_is_said_with_what_is_close(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(door, "ask", lambda host, question, arguments, kind: {"lo", "vnet12"})
    assert preflight.before_start(RunPlan(Profile("p", filters={"device": "vnet2"}), {}, [])).requests == []
    assert capsys.readouterr().err == (
        "netconsole: device vnet2: no interface has this name in any network namespace that is watched now;"
        ' it is watched for; did you mean "vnet12"?\n'
    )


def test_a_host_that_cannot_be_asked_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> set[str]:
        raise Unanswered(24, "no descriptors left")

    monkeypatch.setattr(door, "ask", fails)
    preflight.before_start(RunPlan(Profile("p", filters={"device": "nope"}), {}, []))
    assert capsys.readouterr().err == ""


def test_what_a_scope_cannot_narrow_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    manifests = load_all()
    requests = plan(load("minimal", manifests), manifests, ["softnet", "link_rates", "self_cost"])
    narrow = Profile("p", filters={"netns": 4026532469}, given={"netns": "uxb"})
    preflight.before_start(RunPlan(narrow, manifests, requests))
    assert capsys.readouterr().err == "netconsole: only netns uxb; host-wide: Softnet\n"
