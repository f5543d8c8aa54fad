"""Where guest and host are put on one clock, the remainder is divided into the halves that are true."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netconsole.ping import capture
from netconsole.ping.analysis.analyze import analyze
from netconsole.ping.analysis.joint_clock import related
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown
from netconsole.ping.capture import ROLES, PingCapture, Role
from tests.support.ping import capture_of, echo, linked

HZ = 2_500_000_000
KICK, INTERRUPT = 9, 21
"""The true halves, in us, on both sides: from the guest's driver to the tap, and from the interrupt to the guest."""
COUNT = 8


def run(
    clocks: dict[str, dict[str, Any]],
    guest_offset_ns: int = 0,
    kick_us: float | None = None,
    without: tuple[str, str] = ("", ""),
) -> Breakdown:
    """A run on one true clock; guests' clocks are off by ``guest_offset_ns``. ``kick_us``: of each kick is measured.

    ``without``: a role whose first echo lacks a field.
    """
    lengths = {
        "A": 18,
        "B": 13,
        "C": 15,
        "D": 12,
        "E": 20,
        "F": 24,
        "G": 8,
        "H": 7,
        "I": 8,
        "J": 15,
        "K": 8,
        "L": 20,
        "M": 16,
    }
    packets: dict[str, list[dict[str, Any]]] = {role: [] for role in ROLES}
    irqs: dict[str, list[dict[str, Any]]] = {"sender-host": [], "receiver-host": []}
    for seq in range(COUNT):
        at, mark = 1_000_000 * (seq + 1), {}
        for name in "ABCDEFGHIJKLM":
            mark[name] = at
            at += lengths[name] + {"A": KICK, "E": INTERRUPT, "H": KICK, "L": INTERRUPT}.get(name, 0)
        end = {name: mark[name] + length for name, length in lengths.items()}
        for role, first, last, back, done in (
            ("sender-vm", "A", "A", "M", "M"), ("sender-host", "B", "B", "K", "K"),
            ("receiver-host", "D", "D", "I", "I"), ("receiver-vm", "F", "F", "H", "H"),
        ):  # fmt: skip
            at_ns = mark[first] * 1000 + (guest_offset_ns if role.endswith("vm") else 0)
            times = (end[last] - mark[first], mark[back] - end[last], end[done] - mark[back])
            packets[role].append(echo(seq, *times, at_ns=at_ns))
        irqs["receiver-host"].append({"id": 7, "seq": seq, "total": lengths["E"]})
        irqs["sender-host"].append({"id": 7, "seq": seq, "total": lengths["L"]})
    files = []
    for role, rows in packets.items():
        if role == "host":
            continue
        vhost = {"vhost_irq": {"packets": irqs[role]}} if role in irqs else {}
        if kick_us is not None and role in irqs:
            vhost["vhost_kick"] = {"packets": [{"id": 7, "seq": seq, "total": kick_us} for seq in range(COUNT)]}
        if role == without[0]:
            del rows[0][without[1]]
        document = {"schema": capture.SCHEMA, "role": role, "packets": rows, **vhost, **clocks.get(role, {})}
        files.append(CaptureFile(role, capture.parse(json.dumps(document).encode(), role)))
    return analyze(files)


def point(ns: int, tsc: int) -> dict[str, Any]:
    return {"ns": ns, "tsc": tsc, "hz": HZ, "accuracy_us": 0.2}


def test_the_tsc_that_kvm_gives_a_guest_divides_the_remainder() -> None:
    offset, guest_ns = -(2**50), 77_000_000_000
    host = {"clock": {"tsc": [point(0, 5 * HZ), point(10**10, 5 * HZ + 10 * HZ)]}, "guest_tsc": {"offset": offset}}
    guest_tsc = (5 * HZ + offset) % 2**64
    guest = {"clock": {"tsc": [point(guest_ns, guest_tsc), point(guest_ns + 10**10, (guest_tsc + 10 * HZ) % 2**64)]}}
    clocks: dict[str, dict[str, Any]] = {
        "sender-vm": guest,
        "receiver-vm": guest,
        "sender-host": host,
        "receiver-host": host,
    }
    found = run(clocks, guest_ns)
    for side in ("U_sender", "U_receiver"):
        halves = found.halves[side]
        kick, interrupt = halves["kick"].mean_us, halves["interrupt"].mean_us
        assert kick == pytest.approx(KICK, abs=0.01) and interrupt == pytest.approx(INTERRUPT, abs=0.01)
        assert (kick or 0) + (interrupt or 0) == pytest.approx(found.segments[side].mean_us)
        assert halves["kick"].accuracy_us == pytest.approx(0.4) and halves["kick"].by == "packets"


def test_a_scaled_tsc_is_scaled_back() -> None:
    ratio = 3 * 2**47  # the guest's TSC runs 1.5 times as fast
    host = {"clock": {"tsc": [point(0, HZ)]}, "guest_tsc": {"offset": 99, "ratio": ratio, "fraction_bits": 48}}
    guest = {"clock": {"tsc": [{**point(0, HZ * 3 // 2 + 99), "hz": HZ * 1.5}]}}
    found = run({"sender-vm": guest, "sender-host": host})
    assert found.halves["U_sender"]["kick"].mean_us == pytest.approx(KICK, abs=0.01)
    # One point of each clock, 8 s before the last echo: each may drift by 500 ppm of that, 4 ms.
    assert found.halves["U_sender"]["kick"].accuracy_us == pytest.approx(2 * (0.2 + 4000))
    assert "U_receiver" not in found.halves


@pytest.mark.parametrize(
    ("guest_at_s", "host_at_s", "error_us"),
    [
        ([8], [-92], 0.2 + 3500 + 0.2 + 50_000),  # 7 s from the guest's point, and 100 s from the host's
        ([-92], [8], 0.2 + 50_000 + 0.2 + 3500),
        ([8], [-92, 9], 0.2 + 3500 + 0.2),
        ([0, 9], [-92], 0.2 + 0.2 + 50_000),
        ([0, 9], [-92, 9], 0.2 + 0.2),
        ([8, 8], [0, 9], 0.2 + 3500 + 0.2),  # two points of one moment tell no drift
    ],
)
def test_each_clock_drifts_from_its_own_points(guest_at_s: list[int], host_at_s: list[int], error_us: float) -> None:
    """The echoes are seen at 1 s to 8 s, and a clock of one point may drift by 500 ppm."""

    def points(at_s: list[int]) -> list[dict[str, Any]]:
        return [point(at * 10**9, (100 + at) * HZ) for at in at_s]

    guest = {"clock": {"tsc": points(guest_at_s)}}
    host = {"clock": {"tsc": points(host_at_s)}, "guest_tsc": {"offset": 0}}
    found = run({"sender-vm": guest, "sender-host": host}).halves["U_sender"]["interrupt"]
    assert found.accuracy_us == pytest.approx(error_us) and found.mean_us == pytest.approx(INTERRUPT, abs=0.01)


ONE_CLOCK: dict[str, dict[str, Any]] = {
    role: {"clock": {"boot_id": role[:4]}} for role in ("sender-vm", "sender-host", "receiver-vm", "receiver-host")
}


def test_what_is_measured_of_a_kick_is_not_in_its_half() -> None:
    """4 of the 9 us are the kick's own segment."""
    for kick_us, kick, words in (
        (None, KICK, "host's network stack, with kick and vhost"),
        (4.0, KICK - 4, "kick"),
    ):
        found = run(ONE_CLOCK, kick_us=kick_us)
        for remainder, way in (("U_sender", "request"), ("U_receiver", "reply")):
            halves = found.halves[remainder]
            assert halves["kick"].mean_us == pytest.approx(kick) and halves["kick"].measured is False
            assert halves["interrupt"].mean_us == pytest.approx(INTERRUPT)
            assert halves["kick"].what == f"{way}: from the guest's driver to the {words}"
            other = {"request": "reply", "reply": "request"}[way]
            assert halves["interrupt"].what == f"{other}: from the interrupt to netif_receive_skb of the guest"
            assert halves["kick"].formula == "host's clock: one kernel, one clock"


@pytest.mark.parametrize("field", ["at_ns", "request_us", "between_us"])
@pytest.mark.parametrize("role", ["sender-vm", "sender-host"])
def test_without_all_times_of_each_echo_nothing_is_divided(role: str, field: str) -> None:
    found = run(ONE_CLOCK, without=(role, field))
    assert ("U_sender" in found.halves) is (field != "at_ns")  # one that three others tell is known
    assert found.halves.keys() >= {"U_receiver"}


def test_captures_of_one_kernel_share_its_clock_and_others_are_not_guessed() -> None:
    same = {"clock": {"boot_id": "b"}}
    found = run({"receiver-vm": same, "receiver-host": same})
    assert found.halves["U_receiver"]["interrupt"].mean_us == pytest.approx(INTERRUPT)
    assert found.halves.keys() == {"U_receiver"}
    assert run({}).halves == {} and analyze(linked(3)).halves == {}


def test_halves_that_cannot_be_are_said() -> None:
    same = {"clock": {"boot_id": "b"}}
    found = run({"receiver-vm": same, "receiver-host": same}, guest_offset_ns=5_000_000)
    assert any(one.check == "clocks of U_receiver" and not one.ok for one in found.checks)


def side(role: Role, *points: dict[str, Any], name: str = "monotonic", boot: str = "", **more: Any) -> PingCapture:
    """A capture of no echo with these points of its clock."""
    return capture_of(role, [], clock={"tsc": [*points], "name": name, "boot_id": boot}, **more).capture


def host_ns(guest: PingCapture, host: PingCapture, guest_ns: int) -> float:
    relation = related(guest, host)
    assert relation is not None
    return relation.to_host_ns(guest_ns)


def at(s: float, tsc_s: float, late_ns: int = 0, accuracy_us: float = 0.2) -> dict[str, Any]:
    """At so many seconds of the clock the TSC has counted so many seconds."""
    return {**point(round(s * 1e9) + late_ns, round(tsc_s * HZ) % 2**64), "accuracy_us": accuracy_us}


OFFSET: dict[str, Any] = {"guest_tsc": {"offset": 0}}


def test_errors_of_both_sides_add_up() -> None:
    """0.5 us and 0.4 us, the worse point of each, and what each capture says of itself."""
    guest = side("sender-vm", at(0, 0), at(9, 9, accuracy_us=0.5), error_us=1.0)
    host = side("sender-host", at(0, 0, accuracy_us=0.4), at(9, 9), error_us=2.0, **OFFSET)
    relation = related(guest, host)
    assert relation is not None and relation.accuracy_us == pytest.approx(3.9)
    same = related(side("sender-vm", boot="b", error_us=1.0), side("sender-host", boot="b", error_us=2.0))
    assert same is not None and (same.accuracy_us, same.to_host_ns(7)) == (3.0, 7.0)


def test_clocks_of_one_kernel_are_one_where_they_have_one_name() -> None:
    guest = side("sender-vm", boot="b", name="monotonic")
    assert related(guest, side("sender-host", boot="b", name="realtime")) is None
    assert related(guest, side("sender-host", boot="c")) is None
    assert related(side("sender-vm"), side("sender-host")) is None
    assert related(capture_of("sender-vm", []).capture, side("sender-host")) is None


@pytest.mark.parametrize(
    ("named", "vm", "is_known"), [("a", "a", True), ("a", "b", False), ("", "b", True), ("a", "", True)]
)
def test_what_kvm_adds_for_another_vm_is_not_used(named: str, vm: str, is_known: bool) -> None:
    host = side("sender-host", at(0, 0), guest_tsc={"offset": 0, "vm": named})
    assert (related(side("sender-vm", at(0, 0), vm=vm), host) is not None) is is_known
    for one, other in ((side("sender-vm"), host), (side("sender-vm", at(0, 0)), side("sender-host", **OFFSET))):
        assert related(one, other) is None  # no point, no relation
    assert related(side("sender-vm", at(0, 0)), side("sender-host", at(0, 0))) is None


def test_a_time_is_counted_from_the_nearest_point_of_each_clock() -> None:
    """Clocks run on between points as they did on average. At 5 s the guest's was 1 ms late, and the host's 2 ms."""
    straight = [at(0, 0), at(10, 10)]
    bent = [straight[0], at(5, 5, 1_000_000), straight[1]]
    assert host_ns(side("sender-vm", *bent), side("sender-host", *straight, **OFFSET), 5_001_000_000) == 5_000_000_000
    more = [straight[0], at(5, 5, 2_000_000), straight[1]]
    assert host_ns(side("sender-vm", *straight), side("sender-host", *more, **OFFSET), 5_100_000_000) == 5_102_000_000
    fast = side("sender-host", at(0, 0), at(10, 10, 10_000), **OFFSET)  # 1 ppm
    assert host_ns(side("sender-vm", *straight), fast, 3_000_000_000) == pytest.approx(3_000_003_000, abs=1)


def test_a_tsc_that_begins_again_is_followed() -> None:
    """The host's after 1 s. Its point after the fact is 1 ms late, and farther away."""
    begin = 2**64 / HZ - 1
    host = side("sender-host", at(0, begin), at(10, begin + 10, 1_000_000), **OFFSET)
    guest = side("sender-vm", at(0, begin))
    assert host_ns(guest, host, 1_500_000_000) == pytest.approx(1_500_000_000, abs=2000)


def test_an_offset_below_zero_is_taken_off_before_scaling() -> None:
    """The guest counts 1.5 times as fast, and 100 s less."""
    kvm = {"offset": -round(150 * HZ), "ratio": 3 << 47, "fraction_bits": 48}
    host = side("sender-host", at(0, 20), guest_tsc=kvm)
    guest = side("sender-vm", {**at(0, 1.5 * 20 - 150), "hz": 1.5 * HZ})
    assert host_ns(guest, host, 2_000_000_000) == pytest.approx(2_000_000_000)
