"""Logs of older tools become captures: the right times of the right echoes, and what a log gets wrong is put right."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netconsole.base.errors import BadInput
from netconsole.ping.cases import read_case
from netconsole.ping.logs import read_log
from netconsole.report import of_ping, to_text
from tests.support import ping_logs

ECHOES = [(18.0 + n, 190.0, 15.0) for n in range(4)]
STAGES = [(22, 7, 3, 3), (24, 7, 3, 3)]


def test_kernel_icmp_rtt_of_both_directions_and_variants() -> None:
    for direction, role in (("TX", "sender-vm"), ("RX", "receiver-vm")):
        for variant, boundary in (("EC", "before_driver"), ("DV", "after_driver")):
            [found] = read_log(ping_logs.rtt(direction, ECHOES, variant, missing=[2]).encode(), "log")
            assert (found.role, found.boundary, found.source) == (role, boundary, "kernel_icmp_rtt")
            assert [(row.id, row.seq) for row in found.packets] == [(4242, 1), (4242, 2), (4242, 3), (4242, 4)]
            first, second = found.packets[:2]
            assert (first.request_us, first.between_us, first.reply_us, first.total_us) == (18, 190, 15, 223)
            assert second.request_us == 19 and second.reply_us is None and second.between_us is None
    [own] = read_log(ping_logs.rtt("TX", ECHOES).encode(), "log", "host")
    assert own.role == "host"
    with pytest.raises(BadInput, match="traced TX, so it is of sender-vm or host, and not of receiver-vm"):
        read_log(ping_logs.rtt("TX", ECHOES).encode(), "log", "receiver-vm")


def test_icmp_drop_detector_knows_its_host_by_its_tap_and_names_losses() -> None:
    lost = [(7, "Request dropped INTERNALLY"), (8, "EXTERNAL (network or peer)"), (9, "Reply dropped INTERNALLY")]
    [found] = read_log(
        ping_logs.drops("vnet3", "bond0", [(13.5, 144.1, 8.3), (13.0, 140.0, 0.0)], lost, 1).encode(), "l"
    )
    assert (found.role, found.inside, found.outside) == ("sender-host", ["vnet3"], ["bond0", "slave1"])
    assert found.packets[0].between_us == 144.1 and found.packets[1].reply_us is None
    outcomes = [row.outcome for row in found.packets[2:]]
    assert outcomes == ["request_lost_inside", "lost_outside", "reply_lost_inside", "unfinished"]
    assert read_log(ping_logs.drops("eth0", "vnet1", ECHOES).encode(), "l")[0].role == "receiver-host"
    bridged = ping_logs.drops("br0", "eth1", ECHOES).encode()
    assert read_log(bridged, "receiver_host_icmp_drop_detector.log")[0].role == "receiver-host"
    with pytest.raises(BadInput, match="write sender-host=FILE or receiver-host=FILE"):
        read_log(bridged, "log")


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_stage_that_tun_tx_to_kvm_irq_counts_twice_is_counted_once(form: str) -> None:
    for kind, role in ((8, "receiver-host"), (0, "sender-host")):
        log = ping_logs.irq(kind, STAGES) if form == "text" else ping_logs.irq_json(kind, STAGES)
        [found] = read_log(log.encode(), "log")
        assert found.role == role and found.vhost_irq is not None
        rows = found.vhost_irq.packets
        assert [(row.id, row.seq) for row in rows] == [(4242, 1), (4242, 2)]
        times = [rows[0].s1_s2, rows[0].s2_s3, rows[0].s3_s4, rows[0].s4_s5, rows[0].total]
        assert times == pytest.approx([22, 7, 3, 3, 35])
        assert "counted twice" in found.notes[0]
        if form == "text":
            assert "printed 43.0 us, computed 36.0 us" in found.notes[0]


def test_a_machine_without_the_last_stage_ends_at_the_one_before_and_says_so() -> None:
    [found] = read_log(ping_logs.irq(8, STAGES, last=4).encode(), "log")
    assert found.vhost_irq is not None and found.vhost_irq.packets[0].total == pytest.approx(32)
    assert any("no stage S5" in note for note in found.notes)


def test_the_kick_has_means_alone() -> None:
    [found] = read_log(ping_logs.kick([(14, 3, 2), (16, 3, 2)]).encode(), "log", "sender-host")
    assert found.vhost_kick is not None and found.vhost_kick.summary is not None
    total, first = found.vhost_kick.summary.total, found.vhost_kick.summary.k1_k2
    assert total is not None and first is not None and (total.mean, total.n, first.mean) == (20, 2, 15)


def test_a_case_of_logs_alone_is_joined_echo_by_echo(tmp_path: Path) -> None:
    logs = {
        "a.log": ping_logs.rtt("TX", [(18, 193, 16)] * 5),
        "b.log": ping_logs.rtt("RX", [(24, 8, 7)] * 5),
        "c.log": ping_logs.drops("vnet3", "eth0", [(13.5, 144.1, 8.3)] * 5),
        "d.log": ping_logs.drops("eth0", "vnet5", [(12.7, 91.3, 9.4)] * 5),
        "e.log": ping_logs.irq(8, [(22, 7, 3, 3)] * 5),
        "f.json": ping_logs.irq_json(0, [(20, 6, 3, 2)] * 5),
        "sender_host_kick.log": ping_logs.kick([(14, 3, 2)] * 5),
    }
    for name, text in logs.items():
        (tmp_path / name).write_text(text)
    found = read_case([str(tmp_path / name) for name in logs]).breakdown
    assert found.paired_packets == 5 and found.round_trip_us == pytest.approx(227)
    means = {name: one.mean_us for name, one in found.segments.items()}
    expected = {"A": 18, "B": 13.5, "I1": 19, "D": 12.7, "E": 35, "F": 24, "G": 8, "H": 7, "I": 9.4, "K": 8.3, "L": 31}
    assert {name: means[name] for name in expected} == pytest.approx(expected)
    assert means["B1"] is None and found.segments["U_receiver"].contains == ["B1"]
    assert sum(value or 0 for value in means.values()) == pytest.approx(227)
    said = {one.detail for one in found.checks if one.check == "imported"}
    assert len(said) == 3 and any("counted twice" in one for one in said)
    to_text(of_ping(found), 80)


GOOD = [
    ping_logs.rtt("TX", ECHOES), ping_logs.drops("vnet3", "eth0", ECHOES, [(9, "Reply dropped INTERNALLY")]),
    ping_logs.irq(8, STAGES), ping_logs.irq_json(0, STAGES), ping_logs.kick([(14, 3, 2)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no log of a known tool"),
        (b"hello\n", "no log of a known tool"),
        (b"[1, 2]", "tun_tx_to_kvm_irq: this file is not JSON of this tool"),
        (b'[{"stage": 1', "this file is not JSON"),
        (b"=== ICMP RTT Trace: x (TX (Local -> Remote)) ===\n", "has no whole echo"),
        (b"=== ICMP Drop Detector ===\n", "only with --verbose"),
        (b"TUN TX INTERRUPT [a:q1] Stage 3 [x]: Delay=1ms\n", "has no echo with more than its first stage"),
    ],
)
def test_what_is_no_log_is_one_line(content: bytes, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_log(content, "log")
    assert said in str(caught.value) and len(str(caught.value).splitlines()) == 1


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(GOOD), st.data())
def test_a_damaged_log_is_refused_in_one_line_or_read(log: str, data: st.DataObject) -> None:
    content = bytearray(log.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 300))] = data.draw(st.binary(max_size=20))
    try:
        assert read_log(bytes(content), "log", None)
    except BadInput as error:
        assert len(str(error).splitlines()) == 1 and str(error).isprintable()
