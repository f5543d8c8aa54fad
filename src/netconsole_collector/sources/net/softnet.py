"""softnet: packets received, backlog drops and time squeezes of every CPU, from /proc/net/softnet_stat.

The figures are exact, and there also where no BPF program can attach. Layout: net/core/net-procfs.c, softnet_seq_show.
"""

from typing import Iterator, List, Sequence, Tuple

from netconsole_collector.kernel.cpus import MAX_CPUS, ONLINE, numbers
from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.sources.base import Json, KernelSource, RowMaker, SourceError, SourceReading, SourceRow

SOFTNET = "/proc/net/softnet_stat"
COUNTS = ("processed", "dropped", "time_squeeze", "received_rps", "flow_limit")

_FIELDS = (0, 1, 2, 9, 10)
_CPU_FIELD = 12
"""Since 5.14 each line ends with backlog length and CPU. Before, the lines are the online CPUs in order."""
_WRAPS_AT = 1 << 32
"""The counters are unsigned int. At 1 000 000 packets/s they wrap around after 72 minutes."""


def parse_softnet(text: str, online: Sequence[int] = ()) -> Iterator[Tuple[int, Tuple[int, ...]]]:
    """CPU and COUNTS of every line. A count that an old kernel lacks is 0, because it lacks that limit too.

    ``online``: the CPUs, for a kernel that does not name them.
    """
    for number, line in enumerate(text.splitlines()):
        fields = [int(field, 16) for field in line.split()]
        at = online[number] if number < len(online) else number
        cpu = fields[_CPU_FIELD] if len(fields) > _CPU_FIELD else at
        yield cpu, tuple(fields[i] if i < len(fields) else 0 for i in _FIELDS)


class Softnet(KernelSource):
    """See the module."""

    def __init__(self, host: Here = HERE) -> None:
        self._host = host
        self._rows = RowMaker(COUNTS, MAX_CPUS, _WRAPS_AT)

    def open(self) -> None:
        """Raises SourceError when the file is not there."""
        self._text()

    def read(self, reading: SourceReading) -> List[Json]:
        """One row per CPU."""
        try:
            found = parse_softnet(self._text(), self._online())
            readings: List[SourceRow] = [({"cpu": cpu}, counts, {}) for cpu, counts in found]
        except ValueError:
            raise SourceError("{}: this version of netconsole cannot read its layout".format(SOFTNET)) from None
        return [reading.table("softnet", "cpus", self._rows.rows(readings))]

    def _online(self) -> List[int]:
        try:
            return numbers(self._host.read(ONLINE).decode("ascii", "replace"))
        except OSError:
            return []

    def _text(self) -> str:
        try:
            return self._host.read(SOFTNET).decode("ascii")
        except OSError as error:
            raise SourceError("{}: {}".format(SOFTNET, error.strerror)) from None
