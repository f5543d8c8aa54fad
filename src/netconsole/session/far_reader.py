"""The process that reads the sources on a far host: what came from it, and what it costs there."""

from __future__ import annotations

import msgspec

from netconsole.host.question_line import QuestionLine
from netconsole.telemetry.frames import Cost, Usage


class FarReader:
    """Seen at the line to it. It runs beside the collector where that host compiles its probes itself."""

    def __init__(self, line: QuestionLine) -> None:
        self._line = line
        self._cpu_ns = 0

    def received_bytes(self) -> int:
        """Bytes that came from it so far."""
        return self._line.received_bytes

    def added_to(self, cost: Cost) -> Cost:
        """The cost of the collector's interval, with the CPU time since the last call, and the memory, of both."""
        usage = cost.usage
        if usage is None:
            return cost
        used_ns, self._cpu_ns = max(0, self._line.cpu_ns - self._cpu_ns), self._line.cpu_ns
        memory_kb = self._line.memory_kb
        both = Usage(
            cpu_ns=None if usage.cpu_ns is None else usage.cpu_ns + used_ns,
            rss_kb=None if usage.rss_kb is None else usage.rss_kb + memory_kb,
            pss_kb=None if usage.pss_kb is None else usage.pss_kb + memory_kb,
        )
        return msgspec.structs.replace(cost, usage=both)
