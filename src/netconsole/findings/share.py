"""What a loss is a share of: everything that came to its place, in its own direction alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netconsole.findings.windows import LONG, NEW_TIMES, SHORT, Window
from netconsole.probes.manifest import FindingSpec
from netconsole.telemetry.frames import Label
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import TableState

RECEIVED, SENT = "rx_packets", "tx_packets"
_SENDING = (
    "xmit", "qdisc", "output", "postrouting", "egress", "neigh", "forward_skb", "ring_full", "full_ring", "ring-full",
    "tcf_kfree", "kfree_skb_list", "lost_", "tx_",
)  # fmt: skip
"""In the names of what is lost before its device counts it as sent: of hooks, functions, reasons and counters."""
_NOT_YET_RECEIVED = ("cpu_backlog", "rx_missed", "rx_errors", "rx_fifo")
"""Of what is lost before its device counts it as received."""
_TELLING = ("hook", "reason", "location", "counter")
_ANSWERED = "NO_SOCKET"
"""Each of these packets is answered (ICMP, RST); on lo without a limit, and the answer is received there, too."""
_LOOPBACK = "lo"


class Passing(NamedTuple):
    """What counts the packets that come to the place of a loss, and what of it is not among them."""

    counter: str
    holds_lost: bool = True
    holds_answers: bool = False

    def of(self, counted: float, lost: float) -> float:
        """Everything that came to the place."""
        return counted + (0.0 if self.holds_lost else lost) - (lost if self.holds_answers else 0.0)


def passing(rule: FindingSpec, labels: Mapping[str, Label]) -> Passing:
    """By the direction in which the packets of a row were on their way."""
    told = " ".join([rule.cause, rule.value, *(str(labels.get(name) or "") for name in _TELLING)]).lower()
    if any(word in told for word in _SENDING) or rule.value.startswith("qdisc_"):
        return Passing(SENT, holds_lost=False)
    if any(word in told for word in _NOT_YET_RECEIVED):
        return Passing(RECEIVED, holds_lost=False)
    is_answered = labels.get("reason") == _ANSWERED and labels.get("device") == _LOOPBACK
    return Passing(RECEIVED, holds_answers=is_answered)


class Packets:
    """How many packets each device receives and sends."""

    def __init__(self, state: State) -> None:
        links = state.probes.get("link_rates")
        self._table = links.tables.get("links") if links is not None and links.measuring else None
        rows = self._table.rows.values() if self._table is not None else ()
        self._keys = {(row.labels.get("netns") or "host", row.labels.get("device")): row.key for row in rows}

    def per_s(self, labels: Mapping[str, Label], counter: str, intervals: int, before: int = 0) -> float | None:
        """The mean of the device that these labels name, over so many intervals before the last ``before``.

        None where it is not known.
        """
        key = self._keys.get((labels.get("netns") or "host", labels.get("device")))
        if self._table is None or key is None or counter not in self._table.rows[key].counts:
            return None
        return _mean(self._table.history(key, counter, intervals + before), before)

    def are_new(self, labels: Mapping[str, Label], counter: str) -> bool:
        """Whether there were far fewer in the minute before. True when that is not known."""
        now, before = self.per_s(labels, counter, SHORT), self.per_s(labels, counter, LONG - SHORT, SHORT)
        return now is None or before is None or now > NEW_TIMES * before

    def share_pct(self, rule: FindingSpec, window: Window, table: TableState, gap: int, tick: int) -> float | None:
        """How many percent of what came to the place of a row were lost, from the first of its moves to the last.

        The first interval is left out, and the last one that is over: of them nobody knows which part the two sources
        saw. By rates: their intervals are not equally long. None of a single interval, and where it is not known.
        """
        run = window.since(gap)
        first, last = run[0].tick, run[-1].tick
        if last < tick and len(run) > 3 and run[-2].tick == last - 1:
            last -= 1
        intervals = min(LONG, last - first)  # the longer, the less it matters that sources are read apart
        if intervals < 1:
            return None
        lost = _mean(table.history(window.row.key, rule.value, intervals + tick - last), tick - last)
        way = passing(rule, window.row.labels)
        counted = self.per_s(window.row.labels, way.counter, intervals, tick - last)
        came = way.of(counted, lost) if counted is not None else 0.0
        return min(100.0, 100 * lost / came) if came > 0 else None


def _mean(past: Sequence[float | None], before: int) -> float:
    """Of all samples but the last ``before`` that are known: devices of a new namespace are read some seconds later."""
    known = [one for one in past[: len(past) - before] if one is not None]
    return sum(known) / len(known) if known else 0.0
