"""Each time of a breakdown says where it comes from, and whether anybody measured it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.ping.analysis.analyze import analyze
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown
from netconsole.ping.model import UNSEEN
from tests.support.ping import capture_of, echo, linked

AT = {
    "sender-vm": "AM",
    "sender-host": ("I1", "B", "K", "L"),
    "receiver-host": ("D", "E", "B1", "I"),
    "receiver-vm": "FGH",
}
FIELDS = {
    **dict.fromkeys(("A", "B", "D", "F"), "request_us"),
    **dict.fromkeys(("H", "I", "K", "M"), "reply_us"),
    **dict.fromkeys(("E", "L"), "vhost_irq.total"),
    **dict.fromkeys(("I1", "B1"), "vhost_kick.total"),
    "G": "between_us",
}
WIRE = "sender-host: between_us - receiver-host: total_us"


def without(role: str, **more: Any) -> list[CaptureFile]:
    return [one for one in linked(3, **more) if one.capture.role != role]


def own_ping(between: float = 150) -> list[CaptureFile]:
    """A host pings the VM of another one."""
    files = [one for one in linked(3) if one.capture.role.startswith("receiver")]
    return [capture_of("host", [echo(n, 10, between, 12) for n in range(3)]), *files]


def test_every_segment_has_the_role_and_the_field_that_it_comes_from() -> None:
    found = analyze(linked(3, kick_us=7.0)).segments
    for role, names in AT.items():
        for name in names:
            one = found[name]
            assert (one.where, one.formula, one.measured) == (role, f"{role}: {FIELDS[name]}", True)
            assert (one.at_most_us, one.contains, one.why) == (None, [], None)
    assert (found["C+J"].where, found["C+J"].formula, found["C+J"].measured) == ("network", WIRE, True)
    assert found["C+J"].why is None


def test_a_remainder_is_not_measured_and_its_formula_has_what_was() -> None:
    found = analyze(linked(3, kick_us=7.0)).segments
    for side, known, us in (("sender", "A + I1 + B + K + L + M", 20), ("receiver", "D + E + F + G + H + B1 + I", 23)):
        one = found[f"U_{side}"]
        assert (one.where, one.measured, one.formula) == (side, False, f"{side}_host - ({known})")
        assert (one.what, one.mean_us, one.at_most_us, one.why) == (UNSEEN[side], us, us, None)  # type: ignore[index]


def test_a_remainder_that_nobody_divided_is_the_whole_side() -> None:
    [receiver] = [one for one in linked(3) if one.capture.role == "receiver-host"]
    times = [{"id": 7, "seq": row.seq, "total_us": row.total_us} for row in receiver.capture.packets]
    found = analyze([*without("receiver-host")[:2], capture_of("receiver-host", times)]).segments
    rest = found["U_receiver"]
    assert (rest.formula, rest.mean_us, rest.contains) == ("receiver_host", 110, ["D", "E", "F", "G", "H", "I"])
    assert rest.what.endswith("; it also holds what was not measured: D, E, F, G, H, I")
    assert found["D"].at_most_us == 110 and found["D"].why == "the capture of receiver-host has no request_us"
    assert found["E"].why == "the capture of receiver-host has no vhost_irq"


@pytest.mark.parametrize(
    ("missing", "sender", "receiver"),
    [
        ("sender-vm", "sender_host is not known: it needs captures of the sender's VM and of the sender's host", None),
        (
            "sender-host",
            "sender_host is not known: it needs captures of the sender's VM and of the sender's host",
            None,
        ),
        ("receiver-host", None, "receiver_host is not known: it needs a capture of the receiver's host"),
        ("receiver-vm", None, None),
    ],
)
def test_what_is_not_known_says_what_it_needs(missing: str, sender: str | None, receiver: str | None) -> None:
    found = analyze(without(missing))
    assert (found.segments["U_sender"].why, found.segments["U_receiver"].why) == (sender, receiver)
    no_wire = missing in ("sender-host", "receiver-host")
    assert found.segments["C+J"].why == ("needs a capture of both hosts" if no_wire else None)
    gone = [name for name in AT[missing] if name in found.segments]
    assert {found.segments[name].why for name in gone} == {f"no capture of {missing}"}
    assert {found.segments[name].measured for name in gone} == {False}
    assert found.round_trip is not None
    assert found.round_trip.why == ("no capture of sender-vm" if missing == "sender-vm" else None)


def test_a_bound_is_there_only_if_it_is_above_zero() -> None:
    """Where the measured ones take more than the whole, the remainder bounds nothing."""
    files = without("receiver-vm")
    overlap = [echo(n, 60, 10, 60) for n in range(3)]
    irq = {"packets": [{"id": 7, "seq": n, "total": 30} for n in range(3)]}
    of_host = capture_of("receiver-host", overlap, vhost_irq=irq)
    found = analyze([of_host if one.capture.role == "receiver-host" else one for one in files]).segments
    assert found["U_receiver"].mean_us == 130 - 150
    assert found["U_receiver"].at_most_us is None and found["F"].at_most_us is None


def test_stages_are_there_where_one_of_them_was_measured() -> None:
    found = analyze(linked(3, kick_us=7.0)).stages
    assert list(found) == ["I1", "E", "B1", "L"]
    one = found["E"]["s2_s3"]
    assert (one.mean_us, one.where, one.formula, one.why) == (
        4,
        "receiver-host",
        "receiver-host: vhost_irq.s2_s3",
        None,
    )
    assert one.measured and one.what.startswith("S2→S3: ")
    total = found["E"]["total"]
    assert (total.mean_us, total.formula, total.measured) == (20, "receiver-host: vhost_irq.total", True)

    def with_irq(**stages: float) -> Breakdown:
        rows = [{"id": 7, "seq": n, "total": 20, **stages} for n in range(3)]
        made = [echo(n, 12, 90, 8) for n in range(3)]
        return analyze([*without("receiver-host"), capture_of("receiver-host", made, vhost_irq={"packets": rows})])

    partly = with_irq(s1_s2=15).stages["E"]
    assert partly["s1_s2"].mean_us == 15 and partly["s2_s3"].mean_us is None
    assert (partly["s2_s3"].measured, partly["s2_s3"].why) == (False, "not measured")
    assert "E" not in with_irq().stages


def test_times_of_several_segments_together() -> None:
    found = analyze(linked(3, kick_us=7.0)).composites
    assert {name: (one.mean_us, one.where, one.formula) for name, one in found.items()} == {
        "external_sender_host_us": (141, "sender-host", "sender-host: between_us"),
        "receiver_total_us": (110, "receiver-host", "receiver-host: total_us"),
        "external_receiver_host_us": (90, "receiver-host", "receiver-host: between_us"),
        "receiver_vm_us": (40, "receiver-vm", "receiver-vm: total_us"),
        "beyond_sender_vm_us": (209, "sender-vm", "sender-vm: between_us"),
        "between_hosts_us": (31, "network", WIRE),
        "virtualization_sender_us": (47, "sender", "U_sender + L + I1"),
        "virtualization_receiver_us": (50, "receiver", "U_receiver + E + B1"),
    }
    assert all(one.measured for one in found.values())
    assert "receiver_total_us" not in analyze(without("receiver-host")).composites


def test_the_own_ping_of_a_host_is_of_that_host() -> None:
    found = analyze(own_ping())
    for name, field in (("B", "request_us"), ("K", "reply_us")):
        assert (found.segments[name].where, found.segments[name].formula) == ("host", f"host: {field}")
    assert found.composites["external_sender_host_us"].formula == "host: between_us"
    wire = "host: between_us - receiver-host: total_us"
    assert found.segments["C+J"].formula == found.composites["between_hosts_us"].formula == wire
    assert found.round_trip is not None and found.round_trip.measured
    assert (found.round_trip.where, found.round_trip.formula) == ("host", "host: total_us")
    assert "virtualization_sender_us" not in found.composites and found.composites["virtualization_receiver_us"]


def test_a_capture_counts_its_echoes_and_one_of_means_has_none() -> None:
    files = linked(3, source="t", kernel="6.1", created="2026-11-01T00:00:00Z")
    summary = {name: {"mean": us, "n": 9} for name, us in (("request_us", 24), ("between_us", 8), ("reply_us", 8))}
    means = capture_of("receiver-vm", [], summary=summary)
    found = {one.role: one for one in analyze([*files[:3], means]).captures}
    assert msgspec.to_builtins(found["sender-host"]) == {
        "role": "sender-host",
        "host": "of sender-host",
        "file": "sender-host.json",
        "echoes": 3,
        "source": "t",
        "kernel": "6.1",
        "created": "2026-11-01T00:00:00Z",
        "boundary": "before_driver",
    }
    assert found["receiver-vm"].echoes == 0
