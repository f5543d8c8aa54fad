"""The filters of the command line reach the knobs of the probes, and what cannot be is one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netconsole.base.errors import BadInput
from netconsole.cli.main import run
from netconsole.cli.measuring import Filters, Measuring, check_used, narrowed
from netconsole.probes.catalogue import shipped
from netconsole.profile.plan import plan
from netconsole.profile.profile import ProbeChoice, Profile
from netconsole_collector.names.vms import Vms

MANIFESTS = {name: shipped(name) for name in ("kernel_drops", "socket_drops", "softnet")}
PROFILE = Profile("p", probes={name: ProbeChoice() for name in MANIFESTS})


def test_every_probe_with_the_knob_is_narrowed_also_where_the_profile_says_another_value() -> None:
    profile = Profile(
        "p", filters={"port": 1}, probes={**PROFILE.probes, "socket_drops": ProbeChoice(knobs={"port": 2})}
    )
    filters = Filters("lo", netns="4026532007", address="10.0.0.1,10.0.0.2", port="53", protocol="udp")
    chosen = narrowed(profile, MANIFESTS, filters.given(), is_far=False)
    knobs = {one.name: one.knobs for one in plan(chosen, MANIFESTS)}
    assert [knobs["kernel_drops"][name] for name in ("device", "netns", "port", "protocol")] == [
        "lo",
        4026532007,
        53,
        "udp",
    ]
    assert knobs["socket_drops"]["address"] == "10.0.0.1,10.0.0.2"
    assert knobs["socket_drops"]["port"] == 53 and "device" not in knobs["socket_drops"]
    assert plan(narrowed(chosen, MANIFESTS, {"port": 8}, False), MANIFESTS, ["kernel_drops"])[0].knobs["port"] == 8


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"device": "x" * 16}, "--device: expected the name of an interface"),
        ({"address": "10.0.0.300"}, "--address: expected an address or a prefix"),
        ({"address": "10.0.0.1,"}, "--address: expected an address or a prefix"),
        ({"address": "from:10.0.0.1,10.0.0.2"}, "--address: expected an address or a prefix"),
        ({"port": 70000}, "--port: expected a whole number from 0 to 65535"),
        ({"port": "to:x"}, "--port: expected a whole number from 0 to 65535"),
        ({"mac": "02:00:5e:00:53"}, "--mac: expected a MAC address, such as 02:00:5e:00:53:01"),
        ({"protocol": "tpc"}, "--protocol: expected tcp, udp"),
        ({"reason": "NO_SOCKET;x"}, "--reason: expected at most 8 drop reasons, such as NO_SOCKET"),
        ({"reason": "NO_SOCKT"}, "--reason: this kernel has no drop reason NO_SOCKT: did you mean NO_SOCKET?"),
        ({"netns": "no-such-\x1b[2J"}, "--netns: no network namespace is named"),
    ],
)
def test_what_is_no_filter_is_one_line(filters: dict[str, str | int], said: str) -> None:
    with pytest.raises(BadInput) as error:
        narrowed(PROFILE, MANIFESTS, filters, is_far=False)
    assert said in str(error.value) and "\x1b" not in str(error.value)


def test_reasons_narrow_what_tells_them_and_are_checked_where_the_kernel_is_known() -> None:
    chosen = narrowed(PROFILE, MANIFESTS, Filters(reason="not:no_socket").given(), is_far=False)
    knobs = {one.name: one.knobs for one in plan(chosen, MANIFESTS)}
    assert knobs["kernel_drops"]["reason"] == "not:no_socket" and "reason" not in knobs["socket_drops"]
    far = narrowed(PROFILE, MANIFESTS, {"reason": "OF_A_LATER_KERNEL"}, is_far=True)
    assert plan(far, MANIFESTS, ["kernel_drops"])[0].knobs["reason"] == "OF_A_LATER_KERNEL"


def test_a_vm_stands_for_its_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    taps = {"web-07": ["vnet3"], "two": ["vnet4", "vnet5"], "none": []}
    monkeypatch.setattr(Vms, "taps", lambda _: taps)
    chosen = narrowed(PROFILE, MANIFESTS, Filters(vm="web-07").given(), is_far=False)
    assert {one.name: one.knobs for one in plan(chosen, MANIFESTS)}["kernel_drops"]["device"] == "vnet3"
    for vm, said in (
        ("two", "two must have one tap, and has 2: vnet4, vnet5; give one of them with --device"),
        ("none", "none must have one tap, and has none"),
        ("web-7", 'no running VM is named "web-7"; did you mean "web-07"?'),
    ):
        with pytest.raises(BadInput, match=re.escape(said)):
            narrowed(PROFILE, MANIFESTS, {"vm": vm}, is_far=False)
    with pytest.raises(BadInput, match="not both: each names a device"):
        narrowed(PROFILE, MANIFESTS, {"vm": "web-07", "device": "lo"}, is_far=False)


@pytest.fixture
def only_softnet(tmp_path: Path) -> str:
    """A profile of a probe that has no filters."""
    (tmp_path / "mine.toml").write_text("[probes.softnet]\n")
    return str(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("profile", "probes", "filters", "said"),
    [
        ("drops", ["softnet"], Filters(port="53"), "--port: no probe of --probe has this filter: softnet"),
        ("drops", ["softnet"], Filters("nosuch", vlan=5), "--device: no probe of --probe has this filter"),
        ("drops", ["softnet", "link_rates"], Filters(vlan=5), "has this filter: softnet, link_rates"),
        ("mine", [], Filters(reason="NO_SOCKET"), "--reason: no probe of profile mine has this filter"),
    ],
)
def test_a_filter_that_no_probe_of_the_run_has_is_refused(
    only_softnet: str, profile: str, probes: list[str], filters: Filters, said: str
) -> None:
    with pytest.raises(BadInput) as error:
        Measuring(only_softnet if profile == "mine" else profile, probes, filters, host=["far"]).plan()
    assert said in str(error.value)


def test_packets_are_asked_of_probes_that_sample_them(only_softnet: str) -> None:
    file = Path("a.pcapng")
    made = Measuring("summary", host=["far"], pcap=file).plan()
    assert made.packets == file
    asked = {one.name: one.mode for one in made.requests if one.knobs.get("packets")}
    assert asked == {"kernel_drops": "details"}
    budgets = [Measuring("summary", host=["far"]).plan().profile.budget, made.profile.budget]
    assert [one.events_per_s for one in budgets] == [0, 200], "else the governor would take the samples away"
    with pytest.raises(
        BadInput, match="--pcap: no probe here samples packets: add --probe kernel_drops or --probe mirror"
    ):
        Measuring(only_softnet, host=["far"], pcap=file).plan()


def test_a_probe_that_the_profile_lacks_may_have_the_filter(only_softnet: str) -> None:
    requests = Measuring(only_softnet, ["kernel_drops"], Filters("lo"), host=["far"]).plan().requests
    assert [one.knobs["device"] for one in requests] == ["lo"]


def test_a_vm_is_refused_by_its_own_name() -> None:
    made = Measuring("drops", ["softnet"], host=["far"]).plan()
    with pytest.raises(BadInput, match="--vm: no probe of --probe has this filter"):
        check_used({"vm": "web-07"}, made)


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"port": "53", "protocol": "icmp"}, '--port: contradicts protocol "icmp", which has no ports'),
        ({"port": "53", "protocol": "icmpv6"}, '--port: contradicts protocol "icmpv6", which has no ports'),
        ({"address": "::1", "protocol": "icmp"}, '--address: contradicts protocol "icmp": this is an IPv6 address'),
        ({"address": "to:192.0.2.1", "protocol": "icmpv6"}, "--address: contradicts protocol"),
    ],
)
def test_filters_that_no_packet_can_pass_are_refused(filters: dict[str, str | int], said: str) -> None:
    with pytest.raises(BadInput) as error:
        narrowed(PROFILE, MANIFESTS, filters, is_far=False)
    assert said in str(error.value) and len(str(error.value).splitlines()) == 1


def test_a_filter_that_contradicts_one_of_the_profile_is_refused() -> None:
    icmp = Profile("p", filters={"protocol": "icmp"}, probes=PROFILE.probes)
    with pytest.raises(BadInput, match='--port: contradicts protocol "icmp", which has no ports'):
        narrowed(icmp, MANIFESTS, {"port": "53"}, is_far=False)
    dns = Profile("p", filters={"port": 53}, probes=PROFILE.probes)
    with pytest.raises(BadInput, match=r'p: filters\.port: contradicts protocol "icmp", which has no ports'):
        narrowed(dns, MANIFESTS, {"protocol": "icmp"}, is_far=False)
    assert narrowed(icmp, MANIFESTS, {"protocol": "udp", "port": "53"}, is_far=False).filters["port"] == 53


@pytest.mark.parametrize("command", [[], ["snapshot"], ["probes", "list"]])
def test_help_has_its_short_name(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "-h"]) == 0
    assert "-h, --help" in capsys.readouterr().out
