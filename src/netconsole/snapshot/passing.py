"""What counts the packets that come to the place of a loss: those of its device in its own direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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

    def share_pct(self, counted: float | None, lost: float) -> float | None:
        """What was lost, in percent of all that came to the place; None where that is not known."""
        came = (counted or 0.0) + (0.0 if self.holds_lost else lost) - (lost if self.holds_answers else 0.0)
        return min(100.0, 100 * lost / came) if counted is not None and came > 0 else None


def passing(cause: str, column: str, labels: Mapping[str, object]) -> Passing:
    """By the direction in which the packets of a row were on their way. ``cause``: of its finding, or empty."""
    told = " ".join([cause, column, *(str(labels.get(name) or "") for name in _TELLING)]).lower()
    if any(word in told for word in _SENDING) or column.startswith("qdisc_"):
        return Passing(SENT, holds_lost=False)
    if any(word in told for word in _NOT_YET_RECEIVED):
        return Passing(RECEIVED, holds_lost=False)
    is_answered = labels.get("reason") == _ANSWERED and labels.get("device") == _LOOPBACK
    return Passing(RECEIVED, holds_answers=is_answered)
