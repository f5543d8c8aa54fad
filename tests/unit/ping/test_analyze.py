"""The breakdown: a real case to a tenth of a microsecond, what always adds up, and input that is odd."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netconsole.base.errors import BadInput
from netconsole.ping import breakdown as breakdowns
from netconsole.ping import capture
from netconsole.ping.analysis.analyze import analyze
from netconsole.ping.analysis.difference import compared
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown
from netconsole.report import of_ping, to_text
from netconsole.report.formats import RENDERERS
from tests.support.ping import capture_of, echo, four, linked

ROOT = Path(__file__).parents[3]
CASE_A = sorted((ROOT / "tests/support/data/ping-case-a").glob("*.json"))
SCHEMA = json.loads((ROOT / "docs/reference/schema/ping-breakdown-1.json").read_text())


def case_a() -> list[CaptureFile]:
    return [CaptureFile(file.name, capture.load(file)) for file in CASE_A]


def failed(found: Breakdown) -> dict[str, str]:
    """The checks that do not hold."""
    return {one.check: one.detail for one in found.checks if not one.ok}


def mean(found: Breakdown, segment: str) -> float:
    value = found.segments[segment].mean_us
    assert value is not None
    return value


def test_the_real_case_to_a_tenth_of_a_microsecond() -> None:
    found = analyze(case_a())
    expected = {"A": 18.2, "M": 15.7, "F": 24.3, "G": 8.4, "H": 7.3, "U_sender": -11.1, "U_receiver": 9.3, "C+J": 30.7}
    assert {name: round(mean(found, name), 1) for name in expected} == expected
    assert round(found.round_trip_us or 0, 1) == 226.8
    assert [round(value or 0, 1) for value in found.parts.values()] == [82.7, 30.7, 113.4]
    assert [round(value or 0, 1) for value in found.layers.values()] == [74.0, 43.9, 30.7, 80.0, -1.8]
    assert (found.stages["E"]["s1_s2"].mean_us, found.stages["E"]["total"].mean_us) == (22, 42)
    assert found.paired_packets == 16
    assert "-11.1 us" in failed(found)["U_sender is not below zero"]
    assert set(failed(found)) == {"U_sender is not below zero"}
    assert found.dominant == "E" and "I1" not in found.segments and "virtualization_kick_us" not in found.layers
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(breakdowns.encode(found)))
    assert breakdowns.parse(breakdowns.encode(found), "again") == found


def test_the_text_is_at_most_80_columns_and_every_form_has_the_figures() -> None:
    found = analyze(case_a())
    text = to_text(of_ping(found), 80)
    assert max(map(len, text.splitlines())) <= 80
    for form, render in RENDERERS.items():
        written = render(of_ping(found))
        assert all(figure in written for figure in ("226.8", "-11.1", "113.4")), form


def test_where_all_captures_share_echoes_every_segment_is_per_echo() -> None:
    found = analyze(linked(20))
    assert found.paired_packets == 20 and not failed(found)
    assert {one.by for one in found.segments.values()} == {"packets"}
    rest = found.segments["U_receiver"]
    assert rest.p90_us is not None and rest.interval_us is not None and rest.interval_us[0] < mean(found, "U_receiver")
    text = to_text(of_ping(found), 80)
    assert "FROM ECHO TO ECHO" in text and max(map(len, text.splitlines())) <= 80
    # Echo n takes n us longer in the wire: a difference of means would not know.
    wire = found.segments["C+J"]
    assert wire.max_us is not None and wire.min_us is not None and wire.max_us - wire.min_us == pytest.approx(19)


def test_kicks_are_segments_where_a_capture_has_them_and_the_remainder_shrinks() -> None:
    without, with_kicks = analyze(linked(5)), analyze(linked(5, kick_us=7.0))
    for kick, rest in (("I1", "U_sender"), ("B1", "U_receiver")):
        assert mean(with_kicks, kick) == 7
        assert mean(without, rest) - mean(with_kicks, rest) == pytest.approx(7)
    assert with_kicks.layers["virtualization_kick_us"] == 14
    assert with_kicks.stages["B1"]["k1_k2"].mean_us == 4


@pytest.mark.parametrize("missing", ["sender-vm", "sender-host", "receiver-host", "receiver-vm"])
def test_a_missing_role_is_named_and_the_others_are_kept(missing: str) -> None:
    found = analyze([one for one in linked(4) if one.capture.role != missing])
    assert f"no capture of {missing}" in failed(found)["all vantage points"]
    known = {name for name, one in found.segments.items() if one.mean_us is not None}
    gone = {"sender-vm": "AM", "sender-host": "BKL", "receiver-host": "DEI", "receiver-vm": "FGH"}[missing]
    assert known.isdisjoint(gone) and {*"ABDEFGHIKLM"} - {*gone} <= known
    to_text(of_ping(found), 80)
    divided = found.round_trip_us is None or missing == "receiver-vm"
    assert divided or "cannot be given to a segment: captures are missing" in found.findings[0]
    if missing == "receiver-vm":  # what nobody measured is in what remains, and bounded by it
        assert found.segments["U_receiver"].contains == ["F", "G", "H"]
        assert found.segments["F"].at_most_us == mean(found, "U_receiver")
        assert found.incomplete == {"vm_internal_us": ["F", "G", "H"]}
        assert math.isclose(sum(value or 0 for value in found.layers.values()), found.round_trip_us or 0)


def test_the_own_ping_of_a_host_has_no_vm_on_its_side() -> None:
    host = capture_of("host", [echo(n, 10, 150, 12) for n in range(3)])
    found = analyze([host, *[one for one in linked(3) if one.capture.role.startswith("receiver")]])
    assert found.round_trip_us == 172 and found.parts["sender_host_us"] == 22
    assert {"B", "K", "C+J", "D"} <= found.segments.keys() and {"A", "L", "M", "U_sender"}.isdisjoint(found.segments)
    with pytest.raises(BadInput, match="cannot stand beside a capture of a sender"):
        analyze([host, *linked(3)])


def one_host(count: int, *roles: str) -> list[CaptureFile]:
    """Both VMs on one host: 13 us there and 8 back from tap to tap, and 90 us beyond the receiver's tap."""
    boot = {"clock": {"boot_id": "b"}}
    taps = {"sender-host": (["tap1"], ["tap2"]), "receiver-host": (["tap2"], ["tap1"])}
    found = []
    for file, one in linked(count, kick_us=7.0):
        document = {**json.loads(capture.encode(one)), **(boot if one.role in taps else {})}
        if one.role in taps:
            document["inside"], document["outside"] = taps[one.role]
            # The second probe on the same two hooks stamps a little later.
            document["packets"] = [echo(n, 13.2 if "rec" in one.role else 13, 90, 8) for n in range(count)]
        if one.role == "sender-vm":
            document["packets"] = [echo(n, 18, 160, 16) for n in range(count)]
        if not roles or one.role in roles:
            found.append(CaptureFile(file, capture.parse(json.dumps(document).encode(), file)))
    return found


def test_both_ends_on_one_host_have_no_network_between_them() -> None:
    found = analyze(one_host(5))
    assert not failed(found) and found.paired_packets == 5
    assert {name: mean(found, name) for name in ("B", "K", "C+J", "D", "I", "E", "B1")} == {
        "B": 13, "K": 8, "C+J": 0, "D": 0, "I": 0, "E": 20, "B1": 7,
    }  # fmt: skip
    assert found.segments["D"].what == "none: both ends are on one host"
    drawn = [line.split() for line in to_text(of_ping(found), 80).splitlines()]
    assert ["D", "receiver-host", "none"] in drawn and not [row for row in drawn if row[:2] == ["D", "0.0"]]
    assert found.parts == {"sender_host_us": 104, "physical_network_us": 0, "receiver_host_us": 90}
    assert math.isclose(sum(one.mean_us or 0 for one in found.segments.values()), found.round_trip_us or 0)
    assert any(text.startswith("Both ends are on one host: there is no network") for text in found.findings)
    assert {"receiver_total_us", "between_hosts_us"}.isdisjoint(found.composites)
    # Against the same ping over two hosts, all of the difference has its place.
    changed = compared(analyze(linked(5, kick_us=7.0)), found)
    assert math.fsum(one.share_pct or 0 for one in changed.segments.values()) == pytest.approx(100)
    assert changed.segments["C+J"].difference_us == pytest.approx(32)


def test_one_host_whose_receiving_side_nobody_captured() -> None:
    [sender] = one_host(5, "sender-host")
    own = capture.parse(json.dumps({**json.loads(capture.encode(sender.capture)), "one_host": True}).encode(), "s")
    found = analyze([*one_host(5, "sender-vm", "receiver-vm"), CaptureFile("s", own)])
    assert found.parts == {"sender_host_us": 104, "physical_network_us": 0, "receiver_host_us": 90}
    assert found.segments["U_receiver"].contains == ["E", "B1"]
    host = capture_of("host", [echo(n, 10, 60, 12) for n in range(5)], one_host=True)
    pinged = analyze([host, *one_host(5, "receiver-vm")])
    assert not failed(pinged) and pinged.parts["receiver_host_us"] == 60 and mean(pinged, "C+J") == 0


def test_times_that_a_kernel_does_not_tell_are_in_the_remainder_and_the_others_are_kept() -> None:
    files = []
    for file, one in linked(4):
        if one.role == "receiver-vm":  # a kernel without kprobes does not tell when ICMP gets a request
            rows = [{"id": 7, "seq": r.seq, "reply_us": r.reply_us, "total_us": r.total_us} for r in one.packets]
            files.append(capture_of("receiver-vm", rows))
        else:
            files.append(CaptureFile(file, one))
    found = analyze(files)
    assert found.paired_packets == 4 and found.segments["H"].by == "packets"
    assert found.segments["F"].mean_us is None and found.segments["U_receiver"].contains == ["F", "G"]
    assert math.isclose(sum(one.mean_us or 0 for one in found.segments.values()), found.round_trip_us or 0)


@pytest.mark.parametrize(("partial", "by"), [(1, "packets"), (2, "means")])
def test_a_few_echoes_without_their_middle_are_left_out(partial: int, by: str) -> None:
    """In one of ten, a kprobe may have been skipped. Where more lack it, the others count by their mean."""
    files = []
    for file, one in linked(10):
        rows = [msgspec.to_builtins(row) for row in one.packets]
        if one.role == "receiver-vm":
            rows[:partial] = [{"id": 7, "seq": row["seq"], "total_us": row["total_us"]} for row in rows[:partial]]
        files.append(capture_of(one.role, rows) if one.role == "receiver-vm" else CaptureFile(file, one))
    found = analyze(files)
    assert found.segments["F"].by == found.segments["U_receiver"].by == by
    left_out = [one for one in found.checks if one.check == "echoes are whole"]
    if by == "packets":
        assert found.paired_packets == 9 and "1 of 10 echoes left out: receiver-vm" in left_out[0].detail
    else:
        assert found.paired_packets == 10 and not left_out


@pytest.mark.parametrize("missing", ["request_us", "between_us", "reply_us", "total_us"])
def test_a_mean_that_follows_from_the_others_is_computed(missing: str) -> None:
    means = {"request_us": 12.7, "between_us": 91.3, "reply_us": 9.4, "total_us": 113.4}
    summary = {name: {"mean": mean, "n": 16} for name, mean in means.items() if name != missing}
    files = [one for one in case_a() if one.capture.role != "receiver-host"]
    document = {"schema": capture.SCHEMA, "role": "receiver-host", "summary": summary}
    found = analyze([*files, CaptureFile("r", capture.parse(json.dumps(document).encode(), "r"))])
    assert found.parts["receiver_host_us"] == pytest.approx(113.4) and mean(found, "I") == pytest.approx(9.4)
    assert found.segments["U_receiver"].contains == ["E"]


def changed(role: str, **fields: Any) -> list[CaptureFile]:
    """Four captures, one of them with other fields."""
    return [CaptureFile(f, c if c.role != role else capture.parse(json.dumps(
        {**json.loads(capture.encode(c)), **fields}).encode(), f)) for f, c in linked(10)]  # fmt: skip


def rows(role: str) -> list[dict[str, Any]]:
    [found] = [json.loads(capture.encode(one.capture)) for one in linked(10) if one.capture.role == role]
    packets: list[dict[str, Any]] = found["packets"]
    return packets


@pytest.mark.parametrize(
    ("role", "change", "check", "said"),
    [
        ("receiver-host", lambda r: [{**row, "seq": row["seq"] + 500} for row in r], "same echoes", "different runs"),
        ("receiver-host", lambda r: [*r, r[3]], "duplicates", "1 echo: two records each"),
        ("sender-host", lambda r: [{**r[0], "between_us": -4e6}, *r[1:]], "clock", "below zero"),
        ("receiver-vm", lambda r: [{**r[0], "between_us": 1e6, "total_us": 1e6}, *r[1:]], "clock", "takes longer"),
        ("sender-vm", lambda r: [{**r[0], "total_us": 3.6e9, "between_us": 3.6e9}, *r[1:]], "clock", "a minute"),
        ("sender-vm", lambda r: [{"id": 7, "seq": 0, "request_us": 1}, *r[1:]], "complete", "without a total"),
        ("sender-vm", lambda r: [{**row, "total_us": row["total_us"] + 9} for row in r], "sender-vm adds up", "0 of"),
    ],
)
def test_odd_echoes_are_one_sentence_and_the_rest_is_kept(role: str, change: Any, check: str, said: str) -> None:
    found = analyze(changed(role, packets=change(rows(role))))
    assert said in failed(found)[check]
    assert found.round_trip_us is not None and found.round_trip_us < 1000
    assert math.isclose(sum(one.mean_us or 0 for one in found.segments.values()), found.round_trip_us)


@pytest.mark.parametrize(
    ("fields", "check"),
    [
        ({"run": "another"}, "same run"),
        ({"boundary": "after_driver"}, "same boundary"),
        ({"ledger": {"map_full": 3}}, "nothing missed"),
        ({"addresses": ["192.0.2.1", "192.0.2.9"]}, "same addresses"),
    ],
)
def test_what_does_not_fit_together_is_said(fields: dict[str, Any], check: str) -> None:
    assert check in failed(analyze(changed("receiver-host", **fields)))


def test_two_captures_of_one_place_are_refused_unless_they_complete_each_other() -> None:
    files = linked(3)
    with pytest.raises(BadInput, match=r"sender-vm has its echoes from sender-vm\.json already"):
        analyze([*files, CaptureFile("again.json", files[0].capture)])


def test_sequences_that_begin_again_are_told_apart_and_a_late_capture_finds_its_round() -> None:
    def ping(first: int, last: int) -> list[dict[str, Any]]:
        return [{**echo(n, 1, 98, 1), "seq": n % 65536} for n in range(first, last)]

    long = capture_of("sender-vm", ping(60_000, 66_000 + 65_536))
    late = capture_of("sender-host", [{**row, "between_us": 80} for row in ping(65_500, 65_600)])
    found = analyze([long, late])
    assert "duplicates" not in failed(found) and found.paired_packets == 100


def test_lost_echoes_are_located_by_the_innermost_place_that_saw_them() -> None:
    files = four(6)
    lost: dict[str, dict[int, str | None]] = {
        "sender-vm": {1: "timeout", 2: "timeout", 3: "timeout"},
        "sender-host": {1: "lost_outside", 2: "lost_outside", 3: "lost_outside"},
        "receiver-host": {2: "request_lost_inside", 3: None},
    }
    made = []
    for file, one in files:
        document = json.loads(capture.encode(one))
        packets = []
        for row in document["packets"]:
            outcome = lost.get(one.role, {}).get(row["seq"], "")
            if one.role.startswith("receiver") and row["seq"] == 1:
                continue
            if one.role == "receiver-vm" and row["seq"] == 2:
                continue
            packets.append({"id": 7, "seq": row["seq"], "outcome": outcome} if outcome else row)
        made.append(CaptureFile(file, capture.parse(json.dumps({**document, "packets": packets}).encode(), file)))
    where = {one.first[0]: one.where for one in analyze(made).losses}
    assert where == {
        "7/1": "request lost between sender-host and receiver-host",
        "7/2": "request lost inside receiver-host",
        "7/3": "reply lost between receiver-host and sender-host",
    }


US = st.floats(0, 1e5, allow_subnormal=False)


@st.composite
def cases(draw: st.DrawFn) -> list[CaptureFile]:
    """Any four captures: nested or not, with echoes or with means, some without vhost."""
    found = []
    for role in ("sender-vm", "sender-host", "receiver-host", "receiver-vm"):
        times = draw(st.lists(st.tuples(US, US, US), min_size=1, max_size=4))
        document: dict[str, Any] = {"schema": capture.SCHEMA, "role": role}
        packets = [echo(n, *row) for n, row in enumerate(times)]
        if draw(st.booleans()):
            document["packets"] = packets
        else:
            document["summary"] = {
                name: {"mean": packets[0][name], "n": draw(st.integers(1, 99))}
                for name in ("request_us", "between_us", "reply_us", "total_us")
            }
        for part, stages in (("vhost_irq", ("s1_s2", "s2_s3", "s3_s4", "s4_s5")), ("vhost_kick", ("k1_k2",))):
            if role.endswith("host") and draw(st.booleans()):
                values = {stage: {"mean": draw(US)} for stage in (*stages, "total")}
                document[part] = {"summary": values}
        found.append(CaptureFile(role, capture.parse(json.dumps(document).encode(), role)))
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_segments_parts_and_layers_always_add_up_to_the_round_trip(files: list[CaptureFile]) -> None:
    found = analyze(files)
    whole = found.round_trip_us
    assert whole is not None
    for values in ([one.mean_us for one in found.segments.values()], found.parts.values(), found.layers.values()):
        assert math.isclose(math.fsum(value or 0 for value in values), whole, abs_tol=1e-6)
    assert {"parts add up", "segments add up", "layers add up"}.isdisjoint(failed(found))
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(breakdowns.encode(found)))
    assert max(map(len, to_text(of_ping(found), 80).splitlines())) <= 80


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), cases())
def test_shares_of_a_difference_always_add_up_to_100_percent(now: list[CaptureFile], then: list[CaptureFile]) -> None:
    current, baseline = analyze(now), analyze(then)
    found = compared(current, baseline)
    for changes in (found.segments, found.layers, found.parts):
        shares = [one.share_pct for one in changes.values() if one.share_pct is not None]
        if found.round_trip.share_pct is None:
            assert shares == []
        else:
            largest = max(abs(share) for share in shares)
            assert math.isclose(math.fsum(shares), 100, abs_tol=1e-9 * max(1e5, largest))
    for segment, stages in found.stages.items():
        whole, parts = stages["total"], [one for name, one in stages.items() if name != "total"]
        added = math.fsum(one.difference_us or 0 for one in parts)
        assert whole.difference_us is None or math.isclose(added, whole.difference_us, abs_tol=1e-6), segment
