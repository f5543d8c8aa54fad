"""A collector that measures nothing: plays a scenario of frames, to test sessions and panes without a kernel.

    python tests/support/fake_collector.py SCENARIO.jsonl

A scenario is a file of JSON lines. A line that has a `kind` is a frame: `v`, `seq`, `mono_ns`, `wall_ns` and `source`
are filled in when they are missing (one second per interval, from a fixed date, or the real clock after
`{"do": "clock", "real": true}`). Other lines are acts:

    {"do": "end"}                             end the interval: the collector's own cost frame, mono_ns goes on by 1 s
    {"do": "await", "command": "set"}         wait for a command of that name (answered like every other)
    {"do": "sleep", "s": 0.1}                 real time: for tests of pace alone
    {"do": "raw", "text": "{\"cut"}           write something that is no frame, as it is, without a line feed
    {"do": "lose"}                            skip a sequence number
    {"do": "refuse", "command": "load", "probe": "x", "error": "why"}    the reply to all commands that match
    {"do": "repeat", "times": 5, "lines": [...]}                         the lines so many times (0: for ever)
    {"do": "complain", "text": "..."}         write to standard error
    {"do": "exit", "status": 3}               end at once
    {"do": "hang"}                            ignore the end of standard input (must be killed)

At the end of the scenario it waits for the end of its input, as the real one does. Every command is answered with a
reply, ok unless refused; with `--log FILE` each is appended to that file as it came.

Python code may use :func:`hello`, :func:`end`, and so on to write scenarios: see :class:`Scenario`.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

EPOCH_WALL_NS = 1_795_251_600_000_000_000
"""2026-11-21 09:00:00 UTC: a fixed date, so that screens are the same on every run."""
EPOCH_MONO_NS = 1_000_000_000_000
INTERVAL_NS = 1_000_000_000
HOST = {
    "name": "hv-017",
    "kernel": "6.1.0-56-amd64",
    "arch": "x86_64",
    "os": "Debian GNU/Linux 12 (bookworm)",
    "cpus": 96,
    "boot_id": "00000000-0000-4000-8000-000000000000",
}


class Scenario:
    """Builds a scenario file line by line; every method returns the scenario, so that calls chain."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def do(self, act: str, **values: Any) -> Scenario:
        """Any act of the list above."""
        self.lines.append({"do": act, **values})
        return self

    def frame(self, kind: str, probe: str | None = None, **values: Any) -> Scenario:
        """Any frame."""
        self.lines.append({"kind": kind, "probe": probe, **values})
        return self

    def hello(self, **host: Any) -> Scenario:
        """The first frame."""
        collector = {"pid": 4242, "python": "3.11.2", "version": "0.1.0"}
        return self.frame("hello", host={**HOST, **host}, collector=collector, capabilities={})

    def status(self, probe: str, state: str = "attached", mode: str = "summary", **values: Any) -> Scenario:
        """A probe changed state."""
        return self.frame("status", probe, state=state, mode=mode, **values)

    def counters(self, probe: str, **values: tuple[int, int]) -> Scenario:
        """Counters as name=(delta, total)."""
        sent = {name: {"delta": delta, "total": total} for name, (delta, total) in values.items()}
        return self.frame("counters", probe, interval_ns=INTERVAL_NS, values=sent)

    def table(
        self, probe: str, name: str, rows: list[dict[str, Any]], full: bool = False, omitted: int = 0
    ) -> Scenario:
        """Rows as {"labels": {...}, "counts": {name: (delta, total)}, "gauges": {...}, "example": {...}}."""
        sent = [
            {
                "labels": row["labels"],
                "counts": {key: {"delta": d, "total": t} for key, (d, t) in row.get("counts", {}).items()},
                "gauges": row.get("gauges", {}),
                "example": row.get("example", {}),
            }
            for row in rows
        ]
        return self.frame("table", probe, name=name, interval_ns=INTERVAL_NS, full=full, omitted=omitted, rows=sent)

    def end(self, **values: Any) -> Scenario:
        """End the interval."""
        return self.do("end", **values)

    def save(self, path: Path) -> Path:
        """Write the file."""
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


class Player:
    """Plays the lines on standard output while a thread answers commands."""

    def __init__(self, log: Path | None) -> None:
        self.seq = 0
        self.mono_ns = EPOCH_MONO_NS
        self.wall_ns = EPOCH_WALL_NS
        self.real_clock = False
        self.refusals: list[dict[str, Any]] = []
        self.commands: queue.Queue[str] = queue.Queue()
        self.ended = threading.Event()
        self.hangs = False
        self.log = log
        self.output = threading.Lock()

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]

    def send(self, frame: dict[str, Any]) -> None:
        with self.output:
            self.seq += 1
            mono = time.monotonic_ns() if self.real_clock else self.mono_ns
            wall = time.time_ns() if self.real_clock else self.wall_ns
            filled = {"v": 1, "probe": None, "seq": self.seq, "mono_ns": mono, "wall_ns": wall, **frame}
            self.write(json.dumps(filled).encode() + b"\n")

    def play(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if self.ended.is_set() and not self.hangs:
                return
            if "kind" in line:
                self.send(line)
            else:
                self.act(line)

    def act(self, line: dict[str, Any]) -> None:
        match line["do"]:
            case "end":
                usage = {"cpu_ns": 1_000_000, "rss_kb": 13_000, "pss_kb": 11_000}
                self.send({"kind": "cost", "interval_ns": INTERVAL_NS, "usage": line.get("usage", usage)})
                self.mono_ns += INTERVAL_NS
                self.wall_ns += INTERVAL_NS
                if self.real_clock:
                    self.ended.wait(line.get("pace_s", INTERVAL_NS / 1e9))
            case "clock":
                self.real_clock = line["real"]
            case "await":
                while self.commands.get() not in (line["command"], "end of input"):
                    pass
            case "sleep":
                self.ended.wait(line["s"])
            case "raw":
                self.write(line["text"].encode("utf-8", "surrogateescape"))
            case "lose":
                self.seq += 1
            case "refuse":
                pass  # holds from the start, wherever it stands: see main
            case "repeat":
                done = 0
                while not self.ended.is_set() and (line["times"] == 0 or done < line["times"]):
                    self.play(line["lines"])
                    done += 1
            case "complain":
                os.write(2, line["text"].encode() + b"\n")
            case "exit":
                os._exit(line["status"])
            case "hang":
                self.hangs = True
                while True:
                    time.sleep(60)
            case other:
                raise SystemExit(f"fake_collector: no act {other!r}")

    def listen(self) -> None:
        for line in sys.stdin.buffer:
            if self.log is not None:
                with self.log.open("ab") as log:
                    log.write(line)
            command = json.loads(line)
            refusal = next((r for r in self.refusals if self.matches(r, command)), None)
            error = None if refusal is None else refusal.get("error", "refused")
            self.send({"kind": "reply", "id": command["id"], "ok": refusal is None, "error": error})
            self.commands.put(command["command"])
        self.ended.set()
        self.commands.put("end of input")

    @staticmethod
    def matches(refusal: dict[str, Any], command: dict[str, Any]) -> bool:
        return refusal["command"] == command["command"] and refusal.get("probe", command.get("probe")) == command.get(
            "probe"
        )


def main() -> None:
    """Play the scenario named on the command line."""
    parser = argparse.ArgumentParser(description="Plays a scenario of frames.")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--log", type=Path)
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.scenario.read_text().splitlines() if line.strip()]
    player = Player(arguments.log)
    player.refusals = [line for line in lines if line.get("do") == "refuse"]
    threading.Thread(target=player.listen, daemon=True).start()
    try:
        player.play(lines)
        player.ended.wait()
    except BrokenPipeError:
        os._exit(0)
    # Not sys.exit: the listener may sit in a read, and nothing here needs a clean-up.
    os._exit(0)


if __name__ == "__main__":
    main()
