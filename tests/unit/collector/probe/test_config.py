"""Knobs as bytes: what the program reads at each offset of struct nc_config."""

from __future__ import annotations

import ipaddress
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from netconsole_collector.probe import config, drop_filter

HEADER = Path(__file__).resolve().parents[4] / "probes" / "common" / "config.h"
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "struct nc_end": 40}


def members() -> dict[str, tuple[int, int]]:
    """Offset and size of the members of struct nc_config, by the rules of C."""
    body = re.search(r"struct nc_config \{(.*?)\n\};", HEADER.read_text("utf-8"), re.DOTALL)
    assert body is not None
    at, found = 0, {}
    for kind, name, count in re.findall(
        r"^\s*(u8|u16|u32|u64|struct nc_end) (\w+)(?:\[(\d+)\])?;",
        body.group(1).replace("NC_REASONS", str(drop_filter.MAX_REASONS)),
        re.MULTILINE,
    ):
        at += -at % min(8, SIZES[kind])
        found[name] = (at, SIZES[kind] * int(count or 1))
        at += found[name][1]
    found["end"] = (at + -at % 8, 0)
    return found


def packed(mode: str = "summary", **knobs: Any) -> dict[str, bytes]:
    raw = config.pack(mode, knobs)
    return {name: raw[at : at + size] for name, (at, size) in members().items()}


def number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def test_the_size_is_that_of_the_header() -> None:
    assert len(config.pack("summary", {})) == members()["end"][0] == config.CONFIG_BYTES


def test_flags_are_those_of_the_header() -> None:
    text = HEADER.read_text("utf-8")
    names = "DEVICE ADDRESS PORT PROTOCOL NETNS THRESHOLD DETAILS COUNTERS BREAKER ENDS ONE_WAY VLAN ETHERTYPE MAC"
    for name in [*names.split(), "REASON", "NOT_REASON"]:
        value = re.search(rf"#define NC_F_{name} (\d+)u", text)
        assert value is not None
        assert getattr(config, f"F_{name}") == int(value.group(1))


def test_nothing_set_is_all_zeros() -> None:
    assert not any(config.pack("summary", {"device": "", "address": None, "port": 0, "protocol": ""}))


@pytest.mark.parametrize("device", ["", "eth0", "fifteen-letters"])
def test_the_device_is_found_again(device: str) -> None:
    assert config.device_of(config.pack("summary", {"device": device})) == device


def test_a_device_is_padded_with_zeros() -> None:
    found = packed(device="eth0")
    assert found["device"] == b"eth0" + bytes(12)
    assert number(found["flags"]) == config.F_DEVICE


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
        ("192.0.2.99/24", "192.0.2.1", "192.0.1.255"),
        ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"),
        ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
    ],
)
def test_an_address_is_a_prefix(text: str, inside: str, outside: str) -> None:
    found = packed(address=text)

    def matches(address: str) -> bool:
        one = ipaddress.ip_address(address)
        raw = one.packed if one.version == 6 else bytes(10) + b"\xff\xff" + one.packed
        return all(not (a ^ b) & m for a, b, m in zip(raw, found["address"], found["mask"], strict=True))

    assert matches(inside)
    assert not matches(outside)


def ends_of(raw: bytes) -> list[tuple[bytes, int]]:
    """Address and port of both ends."""
    return [(raw[at : at + 16], number(raw[at + 32 : at + 34])) for at in (0, 40)]


def test_both_ends_of_a_flow_in_either_direction_or_one() -> None:
    a, b = (bytes(10) + b"\xff\xff" + ipaddress.ip_address(text).packed for text in ("10.0.0.1", "10.0.0.2"))
    found = packed(address="10.0.0.1,10.0.0.2", port="4000, 53")
    assert ends_of(found["ends"]) == [(a, 4000), (b, 53)]
    assert number(found["flags"]) == config.F_ADDRESS | config.F_PORT | config.F_ENDS
    assert not any(found["mask"]) and not any(found["port"])
    found = packed(address="to:10.0.0.2,from:10.0.0.1", port=53)
    assert ends_of(found["ends"]) == [(a, 0), (b, 0)]
    assert number(found["port"]) == 53
    assert number(found["flags"]) == config.F_ADDRESS | config.F_PORT | config.F_ENDS | config.F_ONE_WAY
    assert ends_of(packed(port="to:53")["ends"]) == [(bytes(16), 0), (bytes(16), 53)]


@pytest.mark.parametrize("knobs", [{"port": "1,2,3"}, {"port": "53,to:54"}, {"address": "from:"}, {"address": "a,"}])
def test_what_names_no_ends_is_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(config.KnobError):
        packed(**knobs)


def test_numbers_land_where_the_program_reads_them() -> None:
    found = packed(port=443, protocol="tcp", netns=4026531840, threshold_us=250)
    assert number(found["port"]) == 443
    assert number(found["protocol"]) == 6
    assert number(found["netns"]) == 4026531840
    assert number(found["threshold_ns"]) == 250_000
    assert number(found["flags"]) == config.F_PORT | config.F_PROTOCOL | config.F_NETNS | config.F_THRESHOLD


def test_a_mac_address_is_its_six_bytes() -> None:
    found = packed(mac="02:00:5E:00:53:0a", vlan=7)
    assert found["mac"] == bytes.fromhex("02005e00530a0000")
    assert number(found["flags"]) == config.F_MAC | config.F_VLAN


@pytest.mark.parametrize("mac", ["02:00:5e:00:53", "02005e005301", "02:00:5e:00:53:0g", "02:00:5e:00:53:01:02", 7])
def test_what_is_no_mac_address_is_refused(mac: object) -> None:
    with pytest.raises(config.KnobError, match="knob mac: expected six bytes"):
        packed(mac=mac)


NAMES = {
    "2": "NOT_SPECIFIED",
    "subsystem:3": "ovs",
    "3": "NO_SOCKET",
    "8": "NETFILTER_DROP",
    "196610": "OVS_DROP_METER",
}


def reasons_of(text: str, known: dict[str, str] = NAMES) -> tuple[int, tuple[int, ...]]:
    """Flags and numbers, as the program reads them."""
    raw = config.pack("summary", {"reason": text}, reasons=known)
    at, size = members()["reasons"]
    return number(raw[:4]), struct.unpack("=8I", raw[at : at + size])


def test_drop_reasons_are_the_numbers_of_this_kernel() -> None:
    assert reasons_of("NO_SOCKET") == (config.F_REASON, (3,) * 8)
    assert reasons_of(" no_socket, OVS_DROP_METER ") == (config.F_REASON, (3, 196610) + (3,) * 6)
    assert reasons_of("not:NETFILTER_DROP,NOT_SPECIFIED") == (config.F_REASON | config.F_NOT_REASON, (8, 2) + (8,) * 6)
    assert reasons_of("") == (0, (0,) * 8) == reasons_of("", {})
    eight = {str(value): f"R{value}" for value in range(1, 9)}
    assert reasons_of(",".join(eight.values()), eight)[1] == tuple(range(1, 9))


def test_until_the_reasons_are_known_nothing_is_counted_that_a_filter_may_keep_out() -> None:
    assert number(packed(reason="NO_SUCH")["flags"]) == config.F_REASON | config.F_RESTS
    assert number(packed(reason="")["flags"]) == 0


@pytest.mark.parametrize(
    ("text", "known", "said"),
    [
        ("NO_SOCKT", NAMES, "knob reason: this kernel has no drop reason NO_SOCKT: did you mean NO_SOCKET"),
        ("ZZZ", NAMES, "knob reason: this kernel has no drop reason ZZZ$"),
        ("NO_SOCKET", {}, "knob reason: the drop reasons of this kernel are not known"),
        ("not:", NAMES, "knob reason: expected at most 8"),
        ("A,", NAMES, "knob reason: expected at most 8"),
        ("A B", NAMES, "knob reason: expected at most 8"),
        (",".join("ABCDEFGHI"), NAMES, "knob reason: expected at most 8"),
        (7, NAMES, "knob reason: expected at most 8"),
    ],
)
def test_what_is_no_drop_reason_of_this_kernel_is_refused(text: Any, known: dict[str, str], said: str) -> None:
    with pytest.raises(config.KnobError, match=said):
        config.pack("summary", {"reason": text}, reasons=known)


def test_a_budget_of_nothing_is_summary() -> None:
    assert number(packed("details", events_per_s=0)["flags"]) == 0
    assert number(packed("details", events_per_s=1)["flags"]) == config.F_DETAILS | config.F_BREAKER


@pytest.mark.parametrize(("one_in", "shift"), [(1, 0), (2, 1), (3, 2), (8, 3), (65536, 16)])
def test_details_of_one_flow_in_so_many_are_a_power_of_two(one_in: int, shift: int) -> None:
    assert number(packed(flows_one_in=one_in)["flow_shift"]) == shift
    assert number(packed()["flow_shift"]) == 0


def test_the_circuit_breaker_bounds_details_always_and_rows_when_asked() -> None:
    shift = re.search(r"#define NC_WINDOW_SHIFT (\d+)", HEADER.with_name("breaker.h").read_text("utf-8"))
    assert shift is not None
    windows_per_s = 1e9 / (1 << int(shift.group(1)))
    details = packed("details", events_per_s=100)
    assert number(details["details_runs"]) * windows_per_s == pytest.approx(config.DETAILS_RUNS_PER_S, rel=0.01)
    assert number(details["rows_runs"]) == 0
    rows = packed("summary", rows_per_s=1000)
    assert number(rows["flags"]) == config.F_BREAKER and number(rows["details_runs"]) == 0
    assert number(rows["rows_runs"]) * windows_per_s == pytest.approx(1000, rel=0.01)
    assert number(packed("summary", rows_per_s=1)["rows_runs"]) == 1
    assert number(packed("counters")["flags"]) == config.F_COUNTERS


def test_the_time_that_details_may_take_is_a_share_of_the_window() -> None:
    def bound_ns(mode: str, percent: float) -> int:
        at, size = members()["bound_ns"]
        return number(config.pack(mode, {"events_per_s": 100}, percent)[at : at + size])

    assert bound_ns("details", 2.0) == int(0.02 * (1 << 27))
    assert bound_ns("details", 1e-9) == 1, "0 would be no bound"
    assert bound_ns("details", 0) == bound_ns("summary", 2.0) == 0


def test_what_was_read_is_attended_to_for_three_seconds() -> None:
    (until,) = struct.unpack("=Q", config.attended(7_000_000_000))
    assert until == 10_000_000_000 >> 27


def test_knobs_of_the_probe_alone_lie_in_order() -> None:
    knobs: dict[str, Any] = {"port": 1, "queue_packets": 7, "inside_devices": "vnet*", "deep": True}
    assert config.own_names(knobs) == ["queue_packets", "deep"]
    assert struct.unpack("=4Q", packed(**knobs)["own"]) == (7, 1, 0, 0)


@pytest.mark.parametrize(
    "knobs",
    [
        {"device": "a-name-of-sixteen"},
        {"device": "a\0b"},
        {"device": 5},
        {"device": "\ud800"},
        {"address": 5},
        {"address": "not an address"},
        {"address": "192.0.2.0/33"},
        {"port": 65536},
        {"port": "80"},
        {"port": True},
        {"protocol": "256"},
        {"protocol": "ipx"},
        {"protocol": "²"},
        {"netns": -1},
        {"events_per_s": -5},
        {"threshold_us": "10"},
        {"own": "text"},
        {"own": -1},
        {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1},
    ],
)
def test_what_cannot_be_set_is_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(config.KnobError):
        config.pack("summary", knobs)


@pytest.mark.parametrize(
    ("name", "most", "above"),
    [
        ("port", 65535, 65536),
        ("netns", 0xFFFFFFFF, 0x100000000),
        ("protocol", "255", "256"),
        ("flows_one_in", 65536, 65537),
        ("events_per_s", 1e9, 1.001e9),
        ("threshold_us", 1e9, 1.001e9),
        ("rows_per_s", 1e9, 1.001e9),
        ("own", (1 << 63) - 1, 1 << 63),
        ("device", "fifteen-bytes-1", "sixteen-bytes-12"),
    ],
)
def test_the_largest_value_is_taken_and_the_next_one_refused(name: str, most: Any, above: Any) -> None:
    assert len(config.pack("summary", {name: most})) == config.CONFIG_BYTES
    with pytest.raises(config.KnobError, match=name if name != "own" else "own"):
        config.pack("summary", {name: above})


@pytest.mark.parametrize(
    ("per_s", "every_ns", "burst"),
    [(1, 1_000_000_000, 1), (3, 333_333_333, 1), (8, 125_000_000, 2), (50, 20_000_000, 12), (256, 3_906_250, 64),
     (1000, 1_000_000, 64), (100_000, 10_000, 64)],
)  # fmt: skip
def test_all_cpus_share_the_events_and_save_up_a_quarter_of_a_second(per_s: int, every_ns: int, burst: int) -> None:
    found = packed("details", events_per_s=per_s)
    assert number(found["event_every_ns"]) == every_ns
    assert number(found["event_burst_ns"]) == every_ns * (burst - 1), "the first event of a burst is free"


def test_a_mask_is_of_the_prefix_alone() -> None:
    assert packed(address="192.0.2.0/24")["mask"] == b"\xff" * 15 + b"\0"
    assert packed(address="2001:db8::/32")["mask"] == b"\xff" * 4 + bytes(12)
    assert packed(address="192.0.2.7")["address"] == bytes(10) + b"\xff\xff\xc0\x00\x02\x07"


def test_unknown_modes_and_knobs_are_refused_by_name() -> None:
    with pytest.raises(config.KnobError, match="loud"):
        config.pack("loud", {})
    with pytest.raises(config.KnobError, match=r"prot: .*port"):
        config.merged({"port": 0}, {}, {"prot": 1})
    assert config.merged({"port": 0, "own": 1}, {"port": 5}, {"own": 2}) == {"port": 5, "own": 2}


@pytest.mark.parametrize(("one_in", "shift"), [(1, 0), (2, 1), (4, 2), (16, 4), (17, 5), (1024, 10)])
def test_rows_of_one_count_in_so_many_are_a_power_of_two(one_in: int, shift: int) -> None:
    found = packed(rows_one_in=one_in)
    assert number(found["rows_shift"]) == shift and number(found["flags"]) & config.F_ROWS_SHARE
    assert not number(packed()["flags"]) & config.F_ROWS_SHARE, "a probe without the knob cannot"
