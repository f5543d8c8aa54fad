"""A far host is asked the same as this one, in one line an interval; whatever it says, memory is bounded."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.far.program import Launch
from netconsole.host import identity, question_line
from netconsole.host.far_target import FarTarget
from netconsole.host.question_line import QuestionLine
from netconsole.host.target import Question, Target
from netconsole.sources.base import FrameMaker
from netconsole.sources.runner import FACTORIES
from netconsole_collector.kernel.cpus import ONLINE
from netconsole_collector.primitives import allowed
from netconsole_collector.primitives.changes import PIECE_BYTES, DamagedAnswer, KeptAnswers, changes, restored
from netconsole_collector.primitives.here import HERE
from netconsole_collector.primitives.server import FAILED, HEAD, ITEM
from netconsole_collector.sources.base import SourceError
from netconsole_collector.sources.link_state import LinkTable
from netconsole_collector.sources.netlink_messages import NETLINK_SOCK_DIAG, bound_sockets
from netconsole_collector.sources.softnet import SOFTNET
from tests.support.far_host import NearHost


class Counting(QuestionLine):
    """Counts the lines that go there."""

    def __init__(self, python: str = sys.executable) -> None:
        host = NearHost(python=python)
        super().__init__(lambda: host.answering())
        self.lines = 0

    def exchange(self, line):  # type: ignore[no-untyped-def]
        self.lines += 1
        return super().exchange(line)


@pytest.fixture
def line() -> Iterator[Counting]:
    made = Counting()
    yield made
    made.close()


@pytest.fixture
def far(line: Counting) -> FarTarget:
    return FarTarget(line)


# ---- the same as here ----


def test_what_is_read_there_is_what_is_read_here(far: FarTarget) -> None:
    for path in ("/proc/sys/kernel/osrelease", "/proc/cpuinfo", "/etc/os-release"):
        assert far.read(path) == HERE.read(path)
    assert far.read("/proc/cpuinfo", 5) == HERE.read("/proc/cpuinfo", 5)
    assert sorted(far.names("/sys/class/net/lo/queues")) == sorted(HERE.names("/sys/class/net/lo/queues"))
    assert far.status("/proc/self/ns/net")[:3] == HERE.status("/proc/self/ns/net")[:3]
    assert far.nodename() == HERE.nodename()
    assert identity.describe(far) == identity.describe()
    without = {"conf": ("all",), "neigh": ()}
    assert far.below("/proc/sys/net/ipv4", without, 99) == HERE.below("/proc/sys/net/ipv4", without, 99)
    assert far.inodes("ns/net")[os.getpid()] == HERE.inodes("ns/net")[os.getpid()]
    for name, is_there in (("/proc/sys/net/core", True), ("/sys/module/none", False)):
        far.ahead([Question("read", (name,))])
        assert (far.exists(name), HERE.exists(name)) == (is_there, is_there)


@pytest.mark.parametrize("path", ["/proc/sys/net/none", "/proc/sys/net"])
def test_an_error_there_is_the_error_here(far: FarTarget, path: str) -> None:
    told = []
    for target in (far, HERE):
        with pytest.raises(OSError) as error:
            target.read(path)
        told.append((type(error.value), error.value.errno, error.value.strerror))
    assert told[0] == told[1]


def test_netlink_and_sockets_are_those_of_the_far_host(far: FarTarget) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        inode = os.fstat(one.fileno()).st_ino
        for target in (far, HERE):
            netlink = target.netlink(NETLINK_SOCK_DIAG)
            assert [found.port for found in bound_sockets(netlink) if found.inode == inode] == [one.getsockname()[1]]
            netlink.close()
    tables = []
    for target in (far, HERE):
        inside = target.own_namespace()
        table = LinkTable()
        table.fill(inside.netlink)
        tables.append({index: link.name for index, link in table.links.items()})
        assert b"lo:" in inside.devices()
        inside.netlink.listen()
        inside.close()
    assert tables[0] == tables[1]


# ---- one line an interval, and only changes ----


def test_from_the_third_interval_on_all_questions_go_in_one_line_and_only_changes_come_back(
    line: Counting, far: FarTarget
) -> None:
    make = FrameMaker(target=far)
    lines, carried = [], []
    for _ in range(5):
        line.lines, before = 0, line.received_bytes
        far.begin()
        make.tick()
        assert far.read(ONLINE) and far.read(SOFTNET)
        lines.append(line.lines)
        carried.append(line.received_bytes - before)
    assert lines == [3, 3, 1, 1, 1], "softnet_stat and the CPUs that are online"
    assert carried[4] < 200
    assert make.interval_ns > 0 and abs(make.mono_ns - HERE.now().mono_ns) < 60e9


def test_a_question_may_be_asked_twice_in_one_interval(far: FarTarget) -> None:
    netlink = far.netlink(NETLINK_SOCK_DIAG)
    for _ in range(4):
        far.begin()
        first, second = bound_sockets(netlink), bound_sockets(netlink)
        assert {one.inode for one in first} & {one.inode for one in second}
    netlink.close()


def test_a_question_that_is_asked_no_more_is_forgotten_there(line: Counting, far: FarTarget) -> None:
    for _ in range(3):
        far.begin()
        far.read("/proc/stat")
    assert len(far._places) == 1
    far.begin()
    far.begin()
    assert not far._places
    line.lines = 0
    far.read("/proc/stat")
    assert line.lines == 1


def test_what_a_socket_has_heard_that_nobody_has_taken_is_known_to_be_lost(far: FarTarget) -> None:
    inside = far.own_namespace()
    far.begin()
    heard = struct.pack("<HBI", 16, 0, 4) + b"link"
    far._fresh[Question("listen", (1,))] = (heard, 0.0)
    far.begin()
    with pytest.raises(OSError) as error:
        inside.netlink.listen()
    assert error.value.errno == errno.ENOBUFS
    inside.netlink.listen()


def test_a_line_that_was_lost_is_opened_again_and_what_was_open_is_gone(
    monkeypatch: pytest.MonkeyPatch, line: Counting, far: FarTarget
) -> None:
    monkeypatch.setattr(question_line, "AGAIN_S", 0.0)
    assert not far.begin()
    inside = far.own_namespace()
    program = line._program
    assert program is not None
    program.close()
    is_new = False
    while not is_new:
        with contextlib.suppress(OSError):  # that the line is lost is said once
            is_new = far.begin()
    assert line.generation == 2
    with pytest.raises(OSError) as error:
        inside.devices()
    assert error.value.errno == errno.ESTALE
    assert far.read("/proc/sys/kernel/ostype") == b"Linux\n"


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100, PIECE_BYTES, 3 * PIECE_BYTES + 7])
def test_changes_restore_what_they_tell(size: int) -> None:
    old = bytes(number * 7 % 251 for number in range(size))
    for new in (old, old[:-1], old + b"more", b"x" + old, old.replace(b"\x07", b"\x08"), b"", b"all new" * 20):
        form, told = changes(old, new)
        assert restored(form, told, len(new), old) == new
    assert len(changes(old, old[: size // 2] + b"!" + old[size // 2 :])[1]) < 400 + size // 40


@pytest.mark.parametrize("form", [0, 1, 2, 3])
@pytest.mark.parametrize("told", [b"", b"\0", b"\0\0\0", b"\xff\xff" + bytes(70), changes(b"", b"a" * 99999)[1]])
def test_damaged_changes_are_refused_and_stay_small(form: int, told: bytes) -> None:
    old = b"what was there before" * 5
    try:
        assert len(restored(form, told, 100, old)) in (100, len(old))
    except DamagedAnswer:
        return


def test_both_ends_keep_the_same_and_no_more_than_they_may() -> None:
    kept = KeptAnswers()
    for place in range(1, 40):
        kept.keep(place, bytes(1 << 20))
    assert sum(len(kept.last(place)) for place in range(40)) == 8 << 20
    kept.forget(1)
    kept.keep(9, bytes(1 << 20))
    assert len(kept.last(9)) == 1 << 20
    kept.keep(0, b"nothing is kept here")
    assert kept.last(0) == b""


# ---- what may not be read ----


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow", "/proc/kmsg", "/proc/1/environ", "/proc/1/mem", "/proc/self/root/etc/shadow",
        "/proc/self/../../etc/shadow", "/sys/kernel/debug/x", "/proc/sys/../kmsg", "/run/netns/../../etc/shadow",
        "/sys/class/net/lo/device/../../../../etc/shadow", "/sys/class/net/lo/device/resource0",
        "/var/log/libvirt/qemu/../../secret.log", "relative", "/proc/1/fd/1", "/run/openvswitch/../x",
    ],
)  # fmt: skip
def test_only_what_sources_need_may_be_read(path: str) -> None:
    for check in (allowed.content, allowed.folder, allowed.namespace, allowed.unix_socket):
        with pytest.raises(PermissionError, match="netconsole does not read"):
            check(path.encode())


@pytest.mark.parametrize("source", sorted(FACTORIES))
def test_no_source_asks_for_what_may_not_be_read(far: FarTarget, source: str) -> None:
    made = FACTORIES[source](far)
    try:
        for _ in range(3):
            far.begin()
            made.open()
            made.read(FrameMaker(target=far))
    except SourceError as error:
        assert error.state == "unsupported", error
    finally:
        made.close()


def test_what_may_not_be_read_is_said(far: FarTarget) -> None:
    with pytest.raises(PermissionError, match="netconsole does not read /etc/shadow"):
        far.read("/etc/shadow")
    with pytest.raises(PermissionError, match="netconsole does not read /etc"):
        far.names("/etc")


def test_a_link_that_a_service_has_made_leads_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "realpath", lambda path: b"/etc/shadow")
    with pytest.raises(PermissionError):
        allowed.content(b"/run/openvswitch/ovs-vswitchd.pid")
    with pytest.raises(PermissionError):
        allowed.unix_socket(b"/run/openvswitch/db.sock")


@pytest.mark.parametrize(
    ("protocol", "kind", "body"),
    [
        (0, 16, b""),
        (0, 17, b""),
        (0, 36, bytes(20)),
        (4, 21, bytes(56)),
        (16, 16, b"\x01"),
        (16, 30, b"\x01"),
        (9, 1, b""),
    ],
)
def test_no_netlink_message_changes_anything(protocol: int, kind: int, body: bytes) -> None:
    with pytest.raises(PermissionError):
        allowed.netlink(protocol, kind, body, {30: "ovs_datapath"})
    allowed.netlink(16, 30, b"\x03", {30: "ovs_datapath"})


def test_control_sockets_are_asked_and_not_told() -> None:
    for method in ("exit", "upcall/disable-megaflows", "dpctl/del-flows", None):
        with pytest.raises(PermissionError):
            allowed.request(method, b"/run/openvswitch/ovs-vswitchd.1.ctl")
    with pytest.raises(PermissionError):
        allowed.request("monitor", b"/run/openvswitch/db.sock")
    allowed.selects(["Open_vSwitch", {"op": "select"}])
    for operations in (["Open_vSwitch", {"op": "select"}, {"op": "delete"}], ["Open_vSwitch", 7], None):
        with pytest.raises(PermissionError):
            allowed.selects(operations)


@pytest.mark.parametrize(
    "question",
    [Question("nothing", ()), Question("read", (7,)), Question("dump", (1, 2, "zz")),
     Question("exchange", (5, "{}", 1)), Question("ethtool", ("lo", b"\x02\0\0\0"))],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_an_error_and_no_more(far: FarTarget, question: Question) -> None:
    with pytest.raises(OSError):
        far._result(question)
    assert far.read("/proc/sys/kernel/ostype") == b"Linux\n"


# ---- hostile far sides ----

HELLO = json.dumps(
    {"version": 1, "byteorder": sys.byteorder, "nodename": "n", "release": "6.1", "machine": "x86_64"}
).encode()


def message(number: int, body: bytes) -> bytes:
    return HEAD.pack(HEAD.size - 4 + len(body), number, 1, 2, 3, 4) + body


def item(form: int, told: bytes, size: int | None = None, place: int = 0) -> bytes:
    return ITEM.pack(form, place, len(told), len(told) if size is None else size, 0) + told


def saying(*messages: bytes) -> QuestionLine:
    """A line to a program that says the first at once, and the others when it is asked something."""
    first, others = b"".join(messages[:1]).hex(), b"".join(messages[1:]).hex()
    say = "sys.stdout.buffer.write(bytes.fromhex('{}')); sys.stdout.flush(); sys.stdin.{}()".format
    code = f"import sys; {say(first, 'readline')}; {say(others, 'read')}"
    return QuestionLine(lambda: Launch([sys.executable, "-I", "-c", code]))


def greeting(text: bytes = HELLO) -> bytes:
    return struct.pack("<I", len(text)) + text


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ((b"Welcome to this host!\n" * 9,), "cannot read: a message of"),
        ((greeting(b"{}"),), "cannot (be )?read"),
        ((greeting(HELLO.replace(b'"version": 1', b'"version": 9')),), "version 9 instead of 1"),
        ((greeting(b"[" * 3000),), "cannot (be )?read"),
        ((greeting(), struct.pack("<I", 1 << 31) + b"x"), "a message of 2147483648 bytes"),
        ((greeting(), struct.pack("<I", 3) + b"xyz"), "too short"),
        ((greeting(), message(1, b"")), "too few answers"),
        ((greeting(), message(1, item(1, b"abc", 4))), "cannot (be )?read"),
        ((greeting(), message(1, item(2, b"\xff\xff", 1 << 20))), "cannot (be )?read"),
        ((greeting(), message(1, item(1, b"abc", 1 << 30))), "cannot (be )?read"),
        ((greeting(), message(1, item(7, b"abc"))), "cannot (be )?read"),
        ((greeting(), message(1, item(1, b"abc", place=5))), "cannot (be )?read"),
        ((greeting(), message(1, item(FAILED, b"\xff\x1b[31m"))), "cannot (be )?read"),
        ((greeting(), message(1, item(1, b"abc") + item(1, b"abc", place=9))), "more answers than questions"),
        ((greeting(), message(1, item(1, b"abc")[:-1])), "cannot (be )?read"),
    ],
)
def test_nonsense_is_one_sentence(messages: tuple[bytes, ...], says: str) -> None:
    line = saying(*messages)
    try:
        with pytest.raises(OSError, match=says) as error:
            FarTarget(line).read("/proc/stat")
        assert "\n" not in str(error.value) and "\x1b" not in str(error.value)
    finally:
        line.close()


def test_a_far_host_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_line, "ANSWER_S", 0.2)
    monkeypatch.setattr(question_line, "START_S", 0.2)
    for line in (saying(), saying(greeting())):
        with pytest.raises(OSError, match="answer"):
            FarTarget(line).read("/proc/stat")
        line.close()


def test_of_processors_that_order_bytes_otherwise_netlink_is_not_read() -> None:
    other = "big" if sys.byteorder == "little" else "little"
    line = saying(greeting(HELLO.replace(sys.byteorder.encode(), other.encode())))
    with pytest.raises(OSError, match="order bytes in another way"):
        FarTarget(line).netlink(0)
    line.close()


def test_two_threads_have_lanes_of_their_own(line: Counting) -> None:
    read: list[bytes] = []
    targets: list[Target] = [FarTarget(line) for _ in range(3)]

    def ask(target: Target) -> None:
        for _ in range(20):
            target.begin()
            read.append(target.read("/proc/sys/kernel/ostype"))
        target.close()

    threads = [threading.Thread(target=ask, args=(target,)) for target in targets]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert read == [b"Linux\n"] * 60
