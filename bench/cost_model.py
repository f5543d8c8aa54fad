"""Compares the published cost model of tracing (entry, submission of an event, kernel stack) with this machine.

Test programs run at the tracepoint of dropped packets, while datagrams between two namespaces are dropped. Prints ns
per run from the kernel's statistics, minus those of an empty program, with the spread. Checks nothing. Also in the
lab: `python -m tests.lab run -- CHECKOUT/.venv/bin/python bench/cost_model.py`.
"""

from __future__ import annotations

import argparse
import statistics

from netconsole.calibrate.load import WORKLOADS, LoadEnds
from netconsole.calibrate.tool import Tool
from netconsole.probes.includes import behind_headers
from netconsole.telemetry.request import ProbeRequest

LOAD = next(one for one in WORKLOADS if one.name == "dropped")
POINT = "raw_tracepoint:kfree_skb"
PAGES = 4096
"""16 MB: what is submitted between two visits of the collector has room, so that it is submission that is measured."""
STACK = "u64 stack[16]; bpf_get_stack(ctx, stack, sizeof(stack), 0);"
FIELDS = 8
RECORD = "struct record record = {}; record.fields[0] = bpf_ktime_get_ns();"
BODIES = {
    "empty": ("entry", "15-50", ""),
    "submitted": (
        "event submitted, no wake-up",
        "500-1000",
        f"{RECORD} out.ringbuf_output(&record, sizeof(record), 1);",
    ),
    "woken": ("event submitted, reader woken", "", f"{RECORD} out.ringbuf_output(&record, sizeof(record), 2);"),
    "stack": ("kernel stack of 16 frames", "500-2000", STACK),
}
"""Title, what is published (ns), and the body. 1 is BPF_RB_NO_WAKEUP, 2 BPF_RB_FORCE_WAKEUP (linux/bpf.h)."""


def request(name: str) -> ProbeRequest:
    head = f"struct record {{ u64 fields[{FIELDS}]; }};\nBPF_RINGBUF_OUTPUT(out, {PAGES});\n"
    code = f"{head}int run(void *ctx)\n{{\n    {BODIES[name][2]}\n    return 0;\n}}\n"
    spec = {
        "probe": {"name": name, "version": 1, "modes": ["summary"]},
        "programs": [{"name": "run", "required": True, "attach": [{"point": POINT, "function": "run"}]}],
        "events": {"out": {"map": "out", "record": [{"name": f"f{n}", "type": "u64"} for n in range(FIELDS)]}},
    }
    return ProbeRequest(name, "summary", {}, spec, behind_headers(code))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each stretch")
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in BODIES}
    with LoadEnds() as load, Tool() as tool:
        for name, times in found.items():
            tool.attach(request(name))
            for _ in range(arguments.rounds):
                with tool.run_times() as runs:
                    load.run(LOAD, arguments.seconds)
                program = runs.programs[name, "run"]
                times.append(program.run_time_ns / program.run_count)
            tool.detach(name)
    entry = statistics.median(found["empty"])
    for name, (title, published, _) in BODIES.items():
        own = [ns - (entry if name != "empty" else 0.0) for ns in found[name]]
        spread = f"{min(own):.0f}-{max(own):.0f}"
        print(f"{title:32} published {published or '-':>9} ns   here {statistics.median(own):7.0f} ns ({spread})")


if __name__ == "__main__":
    main()
