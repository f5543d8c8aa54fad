"""The command `record`: all that the console would see, into a file, without a screen."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from netconsole.base.errors import Unable, bad
from netconsole.base.figure import memory, safe
from netconsole.cli.measuring import Measuring, spread
from netconsole.cli.options import (
    BAD_USAGE,
    DONE,
    FOUND,
    INTERRUPTED,
    approach,
    none_measured,
    only_one,
    time_of,
)

LONGEST = "720h"
MAX_NOTE = 400
MOST_BYTES = 1000 * 1024**3
_SIZE = re.compile(r"([0-9]{1,7})(MB|GB)")
_BYTES = {"MB": 1024**2, "GB": 1024**3}

MaxSize = Annotated[
    str,
    typer.Option(
        "--max-size", metavar="SIZE", help="Keep only the newest part of this size, such as 100MB. 1MB or more."
    ),
]
MaxTime = Annotated[
    str,
    typer.Option(
        "--max-time", metavar="TIME", help="Keep only the newest part of this length, such as 30m, 12h. 1m or more."
    ),
]


@spread
def record(
    what: Measuring,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="The new file. An existing file is never overwritten."),
    ],
    duration: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long to record, such as 90s, 10m, 2h. Default: until Ctrl-C."),
    ] = None,
    max_size: MaxSize = "256MB",
    max_time: MaxTime = "24h",
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="A note for the reader: what the recording shows.")
    ] = None,
) -> int:
    """Record everything that the console would show, without a screen. Progress goes to standard error.

    `netconsole replay` shows it later.
    """
    from netconsole.run import headless
    from netconsole.run.assembly import open_run
    from netconsole.run.stop import Interrupted

    host = only_one(what.host, "netconsole record")
    if output == Path("-"):
        raise bad("-o", "", "a recording goes to a file, not to standard output: name one")
    duration_s = None if duration is None else time_of("--duration", duration, "1ms", LONGEST, "10m")
    interval_s = what.interval_s(duration_s)
    max_bytes, max_s = bounds(max_size, max_time)
    with approach(host) as way, open_run(what.plan(interval_s, duration_s), way) as live:
        recorder = live.recorder(output, note and note[:MAX_NOTE], max_bytes, max_s)
        try:
            attached = headless.record(live, recorder, duration_s)
        except Interrupted as error:
            kept = f"what was recorded is in {safe(output)}" if recorder.progress.bytes else "nothing recorded"
            print(f"netconsole: interrupted, {kept}: {error}", file=sys.stderr)
            return INTERRUPTED
    progress = recorder.progress
    if progress.ended is not None:
        print(f"netconsole: {progress.ended}", file=sys.stderr)
        return FOUND if progress.over_budget else BAD_USAGE
    left_out = f", {progress.left_out} frames left out to keep the budget" if progress.left_out else ""
    print(f"netconsole: {memory(progress.bytes / 1024)} in {safe(output)}{left_out}", file=sys.stderr)
    if not attached:
        raise Unable(none_measured(live.plan.requests))
    return DONE


def bounds(size: str, time: str) -> tuple[int, float]:
    """Bytes and seconds of the bounds of a recording. Raises BadInput."""
    from netconsole.recording.writer import LEAST_BYTES

    match = _SIZE.fullmatch(size)
    max_bytes = int(match[1]) * _BYTES[match[2]] if match else 0
    if not LEAST_BYTES <= max_bytes <= MOST_BYTES:
        raise bad("--max-size", "", f'expected a size from 1MB to 1000GB such as "100MB", found "{safe(size, 40)}"')
    return max_bytes, time_of("--max-time", time, "1m", LONGEST, "12h")
