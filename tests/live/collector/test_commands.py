"""Commands, refusals and readers: each wrong thing is said in one sentence, and keeps nothing else from running."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import tempfile
import termios
import time
from pathlib import Path

import pytest

from netconsole.telemetry import frames
from tests.support.live.collector_driver import (
    PROGRAM,
    PYTHON,
    SOURCE,
    Driver,
    call,
    calls_spec,
    load_command,
    of,
    source,
)

pytestmark = pytest.mark.starting


def refused(driver: Driver, **command: object) -> str:
    """The reason for which a load is refused; the status says the same. One line, no traceback."""
    reply = driver.ask(**load_command(**command))  # type: ignore[arg-type]
    assert not reply.ok
    assert reply.error is not None
    assert "\n" not in reply.error
    assert "Traceback" not in reply.error
    return reply.error


def with_points(*points: str) -> dict[str, object]:
    spec = calls_spec()
    spec["programs"][0]["attach"] = [{"point": point, "function": PROGRAM} for point in points]
    return spec


def test_hello_is_first_and_every_capability_gives_a_reason_when_it_is_not_there(driver: Driver) -> None:
    hello = driver.seen[0]
    assert isinstance(hello, frames.Hello)
    assert set(hello.capabilities) >= {
        *("privileges", "bcc", "btf", "raw_tracepoint", "kprobe", "ring_buffer", "batch", "statistics"),
        *("tracefs", "lockdown"),
    }
    assert all(one.ok or one.why for one in hello.capabilities.values())
    assert hello.host.kernel == os.uname().release


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[]\n",
        b"{}\n",
        b'{"id": "x", "command": "stop"}\n',
        b'{"id": 1, "command": "explode"}\n',
        b"\xff\xfe\x00\n",
        b'{"command": "load", "id": 3}\n',
        b'{"command": "load", "id": 3, "probe": "x", "spec": {}, "source": ""}\n',
        b'{"command": "load", "id": 3, "probe": "x", "spec": {}, "source": "", "kernel_cpu_pct": "1"}\n',
        b'{"command": "load", "id": 3, "probe": "x", "spec": [], "source": 7}\n',
        b'{"command": "interval", "id": 3, "ms": -1}\n',
        b'{"command": "interval", "id": 3, "ms": "1000"}\n',
        b'{"command": "statistics", "id": 3, "window_ms": 500, "every_ms": 100}\n',
        b'{"command": "bound", "id": 3, "kernel_cpu_pct": -1}\n',
        b'{"command": "bound", "id": 3, "kernel_cpu_pct": 1e999}\n',
        b'{"command": "set", "id": 3, "probe": "none"}\n',
        b'{"command": "unload", "id": 3, "probe": ["none"]}\n',
        b'{"command": "load", "id": 3, "probe": "x", "source": "", '
        b'"spec": {"probe": {}, "programs": [], "knobs": 5}}\n',
        b'{"id": ' + b"9" * 5000 + b"}\n",
        b"[" * 100_000 + b"\n",
        b"x" * 17_000_000 + b"\n",
    ],
    ids=lambda line: line[:40].decode("latin-1"),
)
def test_what_is_no_command_gets_a_reply_and_does_no_harm(driver: Driver, line: bytes) -> None:
    driver.send_raw(line)
    reply = driver.until(frames.Reply)
    assert not reply.ok
    assert reply.error
    assert driver.ask(command="interval", ms=100).ok


def test_knobs_are_refused_with_their_name(driver: Driver) -> None:
    assert "protocol_x" in refused(driver, knobs={"protocol_x": 1})
    assert "events_per_s" in refused(driver, knobs={"events_per_s": "many"})
    driver.load()
    reply = driver.ask(command="set", probe="calls", knobs={"pid": -1})
    assert not reply.ok
    assert "pid" in (reply.error or "")
    reply = driver.ask(command="set", probe="calls", mode="everything")
    assert "summary" in (reply.error or "")
    call(3, 4)
    driver.ask(command="unload", probe="calls")
    assert of(frames.Counters, driver.seen)[-1].values["calls"].total == 4  # the old knobs held


def test_a_probe_is_loaded_once(driver: Driver) -> None:
    driver.load()
    assert "loaded already" in refused(driver)


def test_a_knob_that_the_manifest_does_not_have_does_not_compile(driver: Driver) -> None:
    why = refused(driver, source=source("calls").replace("nc_knob(config, pid)", "nc_knob(config, pids)"))
    assert "NC_KNOB_pids" in why


def test_a_probe_that_does_not_compile_names_line_and_mistake(driver: Driver) -> None:
    driver.load(probe="steady")
    text = source("calls").replace("nc_count(0);", "nc_count(0); wrong_name(7);")
    own = text[text.rindex("#line ") : text.index("wrong_name")].splitlines()  # behind the headers
    line = int(own[0].split()[1]) + len(own) - 2
    why = refused(driver, source=text)
    assert f"calls.bpf.c:{line}:" in why
    assert "wrong_name" in why
    assert of(frames.Status, driver.seen)[-1].state == "failed"
    call(3, 2)
    assert any(of(frames.Counters, driver.interval(), "steady"))


def test_a_probe_that_the_verifier_refuses_says_why(driver: Driver) -> None:
    text = source("calls").replace("nc_count(0);", "nc_count(0); *(u64 *)key->argument = 1;")
    why = refused(driver, source=text)
    assert "refused" in why
    assert "invalid mem access" in why


def test_a_program_that_ends_the_compiler_itself_says_why(driver: Driver) -> None:
    """LLVM leaves by exit() when a stack is too big."""
    text = source("calls").replace(
        "nc_count(0);", "u64 big[100]; bpf_probe_read_kernel(big, sizeof(big), key); nc_count(big[7]);"
    )
    assert "stack limit" in refused(driver, source=text)


def test_a_function_that_is_not_in_the_source_is_named(driver: Driver) -> None:
    spec = calls_spec()
    spec["programs"][0]["attach"][0]["function"] = "nowhere"
    assert "the program nowhere is not compiled" in refused(driver, spec=spec)


def test_a_manifest_that_does_not_fit_the_program_is_refused_with_both_sizes(driver: Driver) -> None:
    spec = calls_spec()
    spec["tables"]["calls"]["key"] = [{"name": "argument", "type": "u64"}]
    why = refused(driver, spec=spec)
    assert "8 bytes in the manifest, 16 in the program" in why


def test_an_attach_point_that_is_not_there_is_said_and_the_next_is_taken(driver: Driver) -> None:
    driver.load(spec=with_points("raw_tracepoint:no_such_point", "kprobe:no_such_function", "raw_tracepoint:sys_enter"))
    status = of(frames.Status, driver.seen)[-1]
    assert (status.state, status.attach) == ("attached", ["raw_tracepoint:sys_enter"])
    call(3, 6)
    driver.ask(command="unload", probe="calls")
    assert of(frames.Counters, driver.seen)[-1].values["calls"].total == 6


def test_a_probe_without_any_attach_point_lists_what_was_tried(driver: Driver) -> None:
    why = refused(driver, spec=with_points("raw_tracepoint:no_such_point", "kprobe:no_such_function"))
    assert "no_such_point" in why
    assert "no such tracepoint" in why
    status = of(frames.Status, driver.seen)[-1]
    assert status.state == "unsupported"
    assert status.missing == ["raw_tracepoint:no_such_point", "kprobe:no_such_function"]


def test_what_watches_a_module_that_is_not_here_is_refused_before_it_is_compiled(driver: Driver) -> None:
    spec = calls_spec()
    spec["probe"]["module"] = "no_such_module"
    assert refused(driver, spec=spec, source="no C at all") == ("the kernel module no_such_module is not loaded")
    assert of(frames.Status, driver.seen)[-1].state == "unsupported"
    spec["probe"]["module"] = "vt"  # built in, or loaded: every kernel with a console has it
    if Path("/sys/module/vt").is_dir():
        driver.load(spec=spec)
        assert of(frames.Status, driver.seen)[-1].state == "attached"


def test_a_probe_that_lacks_a_part_is_degraded(driver: Driver) -> None:
    spec = calls_spec()
    absent = {"point": "raw_tracepoint:no_such_point", "function": PROGRAM}
    spec["programs"].append({"name": "more", "required": False, "measures": "something more", "attach": [absent]})
    driver.load(spec=spec)
    status = of(frames.Status, driver.seen)[-1]
    assert (status.state, status.missing) == ("degraded", ["raw_tracepoint:no_such_point"])
    assert "something more is not measured" in (status.why or "")


def test_an_alternative_can_ask_for_something_of_the_kernel(driver: Driver) -> None:
    spec = calls_spec()
    point = {"point": "raw_tracepoint:sys_enter", "function": PROGRAM}
    spec["programs"][0]["attach"] = [{**point, "when": "HAVE_no_such_struct_member"}]
    assert "no_such_struct_member" in refused(driver, spec=spec)
    spec["programs"][0]["attach"] = [{**point, "when": "HAVE_sk_buff_len"}]
    driver.load(spec=spec)


def test_nothing_is_attached_because_of_a_function_s_name(driver: Driver) -> None:
    """BCC attaches what is called raw_tracepoint__… by itself: the manifest alone may decide."""
    text = source("calls") + "\nint raw_tracepoint__sys_exit(void *ctx) { nc_count(0); return 0; }\n"
    driver.load(source=text)
    call(3, 5)
    driver.ask(command="unload", probe="calls")
    assert of(frames.Counters, driver.seen)[-1].values["calls"].total == 5


def test_a_worker_that_cannot_start_is_a_failed_probe() -> None:
    with Driver(PYTHON, "--worker-python", "/nonexistent/python3") as driver:
        why = refused(driver)
        assert "/nonexistent/python3" in why


def test_bcc_that_is_missing_is_named_with_the_package(tmp_path: Path) -> None:
    """An interpreter in an environment of its own, which has no bcc."""
    interpreter = tmp_path / "bin" / "python3"
    done = os.spawnlp(os.P_WAIT, PYTHON, PYTHON, "-m", "venv", "--without-pip", str(tmp_path))
    if done != 0:
        pytest.skip("cannot run here: no venv module")
    with Driver(PYTHON, "--worker-python", str(interpreter)) as driver:
        hello = driver.until(frames.Hello)
        assert not hello.capabilities["bcc"].ok
        assert "BCC is not installed" in refused(driver)
        status = of(frames.Status, driver.seen)[-1]
        assert status.state == "unsupported"
        assert "python3-bpfcc" in (status.help or "")


AS_NOBODY = """
import os, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_an_ordinary_user_is_told_what_is_missing() -> None:
    place = Path(tempfile.mkdtemp())  # pytest's own directories are closed to others
    try:
        place.chmod(0o755)
        ignored = shutil.ignore_patterns("__pycache__")  # others write there meanwhile
        shutil.copytree(SOURCE / "netconsole_collector", place / "netconsole_collector", ignore=ignored)
        with Driver(before=[PYTHON, "-c", AS_NOBODY], package=place) as driver:
            hello = driver.until(frames.Hello)
            assert not hello.capabilities["privileges"].ok
            assert "sudo" in (hello.capabilities["privileges"].why or "")
            assert "no permission" in refused(driver)
            status = of(frames.Status, driver.seen)[-1]
            assert (status.state, bool(status.help)) == ("unsupported", True)
    finally:
        shutil.rmtree(place)


def test_loads_wait_for_their_turn_and_all_arrive(driver: Driver) -> None:
    numbers = {driver.send(**load_command(probe=f"calls{number}")) for number in range(4)}
    replies: set[int] = set()
    while numbers - replies:
        reply = driver.until(frames.Reply)
        assert reply.ok
        replies.add(reply.id)
    call(11, 3)
    seen = driver.interval()
    for number in range(4):
        assert of(frames.Counters, seen, f"calls{number}")[-1].values["calls"].total == 3


def test_an_unload_overtakes_a_compile(driver: Driver) -> None:
    never_compiled = f"{source('calls')}/* {time.monotonic_ns()} */"
    number = driver.send(**load_command(source=never_compiled))
    assert driver.ask(command="unload", probe="calls").ok
    refusal = next(frame for frame in driver.seen if isinstance(frame, frames.Reply) and frame.id == number)
    assert not refusal.ok
    assert of(frames.Status, driver.seen)[-1].state == "off"
    driver.load()


FULL_S = 1.0
"""Twenty intervals: what does not grow meanwhile is full."""


def waiting_in(pipe: int) -> int:
    """Bytes that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_reader_that_stops_loses_intervals_but_no_counts(driver: Driver) -> None:
    """While nobody reads, whole intervals are left out: the gap shows in the numbers, memory and totals are right."""
    driver.load()
    driver.ask(command="interval", ms=50)
    for argument in range(500):
        call(argument)
    driver.reading.clear()
    memory = Path(f"/proc/{driver.process.pid}/statm")
    assert driver.process.stdout is not None
    waiting, full_since = -1, 0.0
    while time.monotonic() < full_since + FULL_S or waiting != waiting_in(driver.process.stdout.fileno()):
        if waiting != (waiting := waiting_in(driver.process.stdout.fileno())):
            full_since = time.monotonic()
        for argument in range(500):
            call(argument)
        time.sleep(0.05)
    pages = int(memory.read_text().split()[1])
    assert pages * os.sysconf("SC_PAGE_SIZE") < 40 * 1024 * 1024
    driver.reading.set()
    driver.ask(command="unload", probe="calls")
    numbers = [frame.seq for frame in driver.seen]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] > len(numbers)
    total = of(frames.Counters, driver.seen)[-1].values["calls"].total
    assert total % 500 == 0
    assert sum(frame.values["calls"].delta for frame in of(frames.Counters, driver.seen)) == total
    rows: dict[object, int] = {}
    for table in of(frames.Table, driver.seen):
        for row in table.rows:
            rows[row.labels["argument"]] = rows.get(row.labels["argument"], 0) + row.counts["count"].delta
    assert set(rows.values()) == {total // 500}


def test_lines_stay_within_their_limit(driver: Driver) -> None:
    spec = calls_spec()
    spec["tables"]["calls"]["max_rows"] = 40_000
    spec["histograms"] = {}
    driver.load(spec=spec, source=source("calls").replace("NC_ROWS_sizes", "1024"))
    for argument in range(25_000):
        call(argument)
    table = driver.until(frames.Table, lambda table: table.omitted > 0)
    assert len(table.rows) <= 10_000
    assert len(json.dumps([row.labels for row in table.rows])) < frames.MAX_LINE_BYTES
