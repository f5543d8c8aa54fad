"""Sampled packets in a file, as another reader of pcapng sees them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pcapng
import pytest
from pcapng.blocks import EnhancedPacket, InterfaceDescription, SectionHeader

from netconsole.base.errors import BadInput
from netconsole.base.figure import count
from netconsole.recording import packet_file
from netconsole.recording.packet_file import PacketFile
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count
from netconsole.telemetry.state import State
from tests.unit.telemetry.test_state import SECOND, Stream

PROBE = "kernel_drops"
BEGIN = bytes(range(60))
WHY: dict[str, Any] = {"reason": "NETFILTER_DROP", "location": "nft_do_chain", "cpu": 1, "vlan": 0}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the thread that writes comes late; a console that ends waits less."""
    monkeypatch.setattr(packet_file, "CLOSE_S", 60.0)


@contextmanager
def writing(path: Path, **more: Any) -> Iterator[tuple[PacketFile, Stream]]:
    file = PacketFile(path, {PROBE: "drops"}, **more).open()
    try:
        yield file, Stream(State())
    finally:
        file.close()


def sampled(stream: Stream, packet: str = f"1:1500:{BEGIN.hex()}", device: str = "eth0", **more: Any) -> frames.Event:
    fields = {"mono_ns": stream.mono_ns - 10, "device": device, "netns": "blue", "packet": packet, **WHY, **more}
    return frames.Event(**stream.stamp(PROBE), name="drop", fields=fields)


def counted(stream: Stream, total: int) -> frames.Counters:
    return frames.Counters(**stream.stamp(PROBE), interval_ns=SECOND, values={"drops": Count(delta=0, total=total)})


def blocks(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(pcapng.FileScanner(file))


def packets(path: Path) -> list[Any]:
    return [block for block in blocks(path) if isinstance(block, EnhancedPacket)]


def test_a_packet_has_its_device_its_time_and_why_it_was_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    with writing(path) as (file, stream):
        event = sampled(stream, stack=["nft_do_chain+0x1", "nf_hook_slow+0x2"], vlan=7)
        file.take(stream.state, [event])
    section, interface, packet = blocks(path)
    assert isinstance(section, SectionHeader) and section.options["shb_userappl"].startswith("netconsole ")
    assert isinstance(interface, InterfaceDescription)
    assert interface.options["if_name"] == "eth0"
    assert interface.options["if_description"] == "network namespace blue"
    assert (interface.link_type, packet.captured_len, packet.packet_len) == (1, 60, 1500)
    assert packet.packet_data == BEGIN
    told = "NETFILTER_DROP at nft_do_chain; VLAN 7; CPU 1; stack: nft_do_chain+0x1 < nf_hook_slow+0x2"
    assert packet.options["opt_comment"] == told
    ticks = (packet.timestamp_high << 32) + packet.timestamp_low
    assert ticks == event.happened_ns and interface.timestamp_resolution == pytest.approx(1e-9)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert file.outcome == f"1 packet in {path}"


def test_each_device_namespace_and_link_is_an_interface(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    with writing(path) as (file, stream):
        others = [
            {},
            {"device": "eth1"},
            {"netns": "red"},
            {"packet": f"101:40:{BEGIN[:40].hex()}"},
            {},
            {"device": ""},
        ]
        file.take(stream.state, [sampled(stream, **one) for one in others])
    assert [one.interface_id for one in packets(path)] == [0, 1, 2, 3, 0, 4]
    names = [block.options["if_name"] for block in blocks(path) if isinstance(block, InterfaceDescription)]
    assert names == ["eth0", "eth1", "eth0", "eth0", "no device"]


def test_what_was_counted_and_not_sampled_is_told_with_the_next_packet(tmp_path: Path) -> None:
    """Of an interval only when the next one begins: samples of the same may still come."""
    path = tmp_path / "a.pcapng"
    with writing(path) as (file, stream):
        for total, samples in ((100, 2), (150, 1), (151, 1), (400, 0)):
            file.take(stream.state, [counted(stream, total), *[sampled(stream) for _ in range(samples)]])
    assert [one.options.get("epb_dropcount", 0) for one in packets(path)] == [0, 0, 98, 49]
    assert file.outcome.endswith("; 396 more were counted, and are not in it")


@pytest.mark.parametrize(
    "packet", ["", "1:60", "7:60:00", "1:60:0", "1:60:zz", f"1:60:{'00' * 129}", "1:-1:00", "x" * 300]
)
def test_what_is_no_packet_is_left_out(tmp_path: Path, packet: str) -> None:
    path = tmp_path / "a.pcapng"
    with writing(path) as (file, stream):
        file.take(stream.state, [sampled(stream, packet), sampled(stream, "1:3:000102030405")])
    [only] = packets(path)
    assert (only.packet_len, only.captured_len) == (6, 6), "never shorter than what there is of it"


def test_names_from_outside_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    with writing(path) as (file, stream):
        file.take(stream.state, [sampled(stream, device="a\nb\x1b[31m", reason="c\nd", stack=["e\n" * 9000])])
    [packet] = packets(path)
    said = packet.options["opt_comment"] + packet.interface.options["if_name"]
    assert said.isprintable() and len(packet.options["opt_comment"]) < 9000


def test_a_full_file_ends_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    with writing(path, max_bytes=1 << 20) as (file, stream):
        stack = [f"{number:0120}" for number in range(100)]
        for _ in range(20):
            file.take(stream.state, [sampled(stream, stack=stack) for _ in range(20)])
    assert path.stat().st_size <= 1 << 20 and file.ended == "it is full: 1 MB"
    assert 0 < len(packets(path)) == file.packets < 400 and "(it is full: 1 MB)" in file.outcome


def test_a_full_disk_leaves_whole_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "a.pcapng", os.write

    def until_full(file: int, content: bytes) -> int:
        if os.fstat(file).st_size > 500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, content[:300])

    monkeypatch.setattr(os, "write", until_full)
    with writing(path) as (file, stream):
        file.take(stream.state, [sampled(stream, f"1:128:{'ab' * 128}") for _ in range(20)])
        file.take(stream.state, [counted(stream, 5000)])
    assert len(packets(path)) == file.packets > 0
    assert f"; {count(5000 - file.packets)} more were counted" in file.outcome, "what came after the disk was full, too"
    assert "(no space left on device)" in file.outcome


def test_packets_do_not_go_to_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="packets go to a file"):
        PacketFile(Path("-"), {}).open()
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_text("mine")
    with pytest.raises(BadInput, match="this file exists already, and a file of packets never overwrites"):
        PacketFile(path, {}).open()
    assert path.read_text() == "mine"
