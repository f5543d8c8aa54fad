"""softnet: packets received, backlog drops and time squeezes of every CPU, from /proc/net/softnet_stat.

The figures are exact, and there also where no BPF program can attach. Layout: net/core/net-procfs.c, softnet_seq_show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from netconsole.host.here import HERE
from netconsole.host.identity import online_cpus
from netconsole.host.target import Target
from netconsole.sources.base import FrameMaker, RowMaker, SourceError, SourceRow
from netconsole.telemetry.frames import AnyFrame

SOFTNET = "/proc/net/softnet_stat"
COUNTS = ("processed", "dropped", "time_squeeze", "received_rps", "flow_limit")
MAX_CPUS = 8192
_FIELDS = (0, 1, 2, 9, 10)
_CPU_FIELD = 12
"""Since 5.14 each line ends with backlog length and CPU. Before, the lines are the online CPUs in order."""
_WRAPS_AT = 1 << 32
"""The counters are unsigned int. At 1 000 000 packets/s they wrap around after 72 minutes."""


def parse_softnet(text: str, online: Sequence[int] = ()) -> Iterator[tuple[int, tuple[int, ...]]]:
    """CPU and COUNTS of every line. A count that an old kernel lacks is 0, because it lacks that limit too.

    ``online``: the CPUs, for a kernel that does not name them.
    """
    for number, line in enumerate(text.splitlines()):
        fields = [int(field, 16) for field in line.split()]
        at = online[number] if number < len(online) else number
        cpu = fields[_CPU_FIELD] if len(fields) > _CPU_FIELD else at
        yield cpu, tuple(fields[i] if i < len(fields) else 0 for i in _FIELDS)


class Softnet:
    """See the module."""

    name: ClassVar[str] = "softnet"

    def __init__(self, target: Target = HERE) -> None:
        self._target = target
        self._rows = RowMaker(COUNTS, MAX_CPUS, _WRAPS_AT)

    def open(self) -> None:
        """Raises SourceError when the file is not there."""
        self._text()

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        """One row per CPU."""
        try:
            found = parse_softnet(self._text(), online_cpus(self._target))
            readings: list[SourceRow] = [({"cpu": cpu}, counts, {}) for cpu, counts in found]
        except ValueError:
            raise SourceError(f"{SOFTNET}: this version of netconsole cannot read its layout") from None
        rows, full, omitted = self._rows.rows(readings)
        return [make.table(self.name, "cpus", rows, full, omitted)]

    def close(self) -> None:
        """Nothing to release."""

    def _text(self) -> str:
        try:
            return self._target.read(SOFTNET).decode("ascii")
        except OSError as error:
            raise SourceError(f"{SOFTNET}: {error.strerror}") from None
