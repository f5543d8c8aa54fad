"""Which rows are over the threshold of a rule, and the filters to which a probe is narrowed."""

from __future__ import annotations

import pytest

from netconsole.escalation import crossings
from netconsole.probes.knobs import filters_text
from netconsole.profile.escalation_rules import Escalation
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Row, Scalar
from netconsole.telemetry.histogram import index
from netconsole.telemetry.state import State
from tests.support.stamp import Stamp

SECOND = 1_000_000_000
STAMP: Stamp = {"seq": 1, "mono_ns": SECOND, "wall_ns": 0}


def test_no_address_and_no_name_is_cut() -> None:
    address = "2001:0db8:ffff:ffff:ffff:ffff:ffff:ffff"
    filters: dict[str, Scalar] = {"device": "fifteen-bytes-1", "netns": 4026531840, "protocol": "icmpv6", "port": 65535}
    written = filters_text({**filters, "address": address})
    assert written == f"device=fifteen-bytes-1 netns=4026531840 protocol=icmpv6 port=65535 address={address}"
    assert len(written) > 100


def test_what_comes_from_outside_is_printable() -> None:
    assert filters_text({"device": "\x1b[2J"}) == "device=\\x1b[2J"


RULE = Escalation("kernel_drops", "drops", "count", None, 100.0, where={"class": ("suspicious",)})
LATE = Escalation("tx_queue_latency", "wait", "", 99.0, 1000.0, where={"device": ("eth0",)})


def state_of(*probes: str) -> State:
    state = State()
    for name in probes:
        state.apply(frames.Status(**STAMP, probe=name, state="attached", mode="summary"))
    return state


def drops(state: State, **per_s: int) -> None:
    """Rows of this interval, by device."""
    rows = [
        Row(labels={"device": device, "class": "suspicious"}, counts={"count": Count(delta, delta)})
        for device, delta in per_s.items()
    ]
    rows.append(Row(labels={"device": "lo", "class": "benign"}, counts={"count": Count(10**6, 10**6)}))
    state.apply(frames.Table(**STAMP, probe="kernel_drops", name="drops", interval_ns=SECOND, full=True, rows=rows))


def waits(state: State, device: str, count: int, value_ns: int) -> None:
    slots = Buckets(count, count * value_ns, value_ns, value_ns, [(index(value_ns), count)])
    state.apply(
        frames.Histogram(
            **STAMP, probe="tx_queue_latency", name="wait", interval_ns=SECOND, unit="ns", labels={"device": device},
            delta=slots, total=slots,
        )
    )  # fmt: skip


def test_the_row_that_is_farthest_over_the_threshold_starts_details() -> None:
    state = state_of("kernel_drops")
    drops(state, eth0=150, eth1=400, eth2=100, eth3=101)
    assert sorted(one.measured for one in crossings.crossings(state, RULE)) == [101.0, 150.0, 400.0]
    found = crossings.worst(state, RULE)
    assert found is not None and (found.measured, found.says) == (400.0, "eth1: 400/s")
    assert crossings.worst(state_of("kernel_drops"), RULE) is None
    assert crossings.worst(State(), RULE) is None


@pytest.mark.parametrize(
    ("device", "count", "value_ns", "crosses"),
    [("eth0", 10, 1001, True), ("eth0", 9, 1001, False), ("eth0", 10, 1000, False), ("eth1", 10, 9000, False)],
)
def test_a_percentile_crosses_with_ten_samples_above_its_limit(
    device: str, count: int, value_ns: int, crosses: bool
) -> None:
    state = state_of("tx_queue_latency")
    waits(state, device, count, value_ns)
    assert (crossings.worst(state, LATE) is not None) == crosses


def test_a_label_is_a_filter_if_its_probe_has_that_filter() -> None:
    knobs: dict[str, Scalar] = {"device": "", "netns": 0, "protocol": "", "port": 0}
    labels = (("device", "eth0"), ("netns", "blue"), ("protocol", "UDP"), ("port", 53), ("reason", "X"))
    inodes = {"blue": 4026532177}
    found = {"device": "eth0", "netns": 4026532177, "protocol": "udp", "port": 53}
    assert crossings.narrowing(labels, knobs, inodes.get) == found
    assert crossings.narrowing(labels, {"port": 0}, inodes.get) == {"port": 53}
    unknown = (
        ("netns", "red"),
        ("netns", 7),
        ("protocol", "unparsed"),
        ("protocol", 17),
        ("port", 0),
        ("device", None),
    )
    assert crossings.narrowing(unknown, knobs, inodes.get) == {}


def test_a_namespace_is_said_by_its_name_where_the_row_has_one() -> None:
    filters: dict[str, Scalar] = {"device": "eth0", "netns": 4026532177}
    assert crossings.said(filters, (("device", "eth0"), ("netns", "web"))) == "device=eth0 netns=web"
    assert crossings.said(filters, (("device", "eth0"), ("netns", None))) == "device=eth0 netns=4026532177"


@pytest.mark.parametrize(
    ("reason", "provenance", "filters"),
    [
        ("NO_SOCKET", "kernel", {"reason": "NO_SOCKET"}),
        ("OVS_NO_PORT", "inferred", {}),
        ("ovs reason 99", "kernel", {}),
    ],
)
def test_a_reason_that_the_kernel_gave_narrows_too(reason: str, provenance: str, filters: dict[str, Scalar]) -> None:
    labels = (("provenance", provenance), ("reason", reason))
    assert crossings.narrowing(labels, {"reason": "", "device": ""}, lambda _: None) == filters
    assert crossings.focus(labels, {"reason": "", "device": ""}, lambda _: None) is None


def test_a_row_is_named_by_what_people_look_for() -> None:
    labels: dict[str, frames.Label] = {"port": 53, "reason": "X", "queue": 0, "device": "eth0", "class": "benign"}
    assert crossings.named(labels) == "eth0 queue 0 X port 53"
    assert crossings.named({"class": "benign", "device": ""}) == "a row without names"
