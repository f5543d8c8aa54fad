"""The ledger of a mirror: what came to each stage between the NIC and the workers, and what was lost there.

What is lost before the first counter is invisible, or estimated by what is missing of TCP inside: a mirror that loses
nothing here is whole from here on, and no more. The pane, snapshots and reports all have these stages and words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from netconsole.base import figure
from netconsole.probes.causes import CAUSE_LABELS
from netconsole.probes.manifest import Manifest
from netconsole.snapshot.document import MirrorData, MirrorStageData
from netconsole.telemetry.frames import Int, Label
from netconsole.telemetry.histogram import since
from netconsole.telemetry.ledger import LEDGER_COUNTS
from netconsole.telemetry.span import NOTHING, Span
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import RowKey

MIRROR, XDP, NIC, SOFTNET, PROTOCOLS = "mirror", "mirror_xdp", "nic_counters", "softnet", "protocol_counters"
COPIES = ("packet", "raw")
"""Sockets that get a copy of each packet: what one of them misses is lost for its program alone."""
BACKLOG = "CPU_BACKLOG"
LOST = {"backlog": "lost_backlog", "firewall, IP, UDP": "lost_stack", "socket": "lost_socket"}
"""The counter of each stage of this host that loses, in order."""
WHOLE_LOSES = 2e-5
"""Of what came, a share so small leaves a mirror whole."""
FEW_TUPLES = 8
"""For each worker. The kernel spreads outer tuples over workers by chance: with fewer, one may get several times more
than another."""

LedgerPlace: TypeAlias = tuple[str, str, RowKey]
"""A row of a table: the probe, the table, and its labels."""
_NOWHERE = ("", None)


class LedgerCount(NamedTuple):
    """In all, and per second; None: not known."""

    total: int
    per_s: float | None


class LedgerRow(NamedTuple):
    """A row that has counted something, or has gauges."""

    key: RowKey
    labels: Mapping[str, Label]
    counts: Mapping[str, LedgerCount]
    gauges: Mapping[str, Int | float | None]

    def total(self, name: str) -> int:
        """0 where it has no such count."""
        return self.counts[name].total if name in self.counts else 0

    def per_s(self, name: str) -> float:
        """The same of a rate, and where that is not known."""
        return (self.counts[name].per_s or 0.0) if name in self.counts else 0.0

    def text(self, name: str) -> str:
        """A label as it is shown; outside text becomes harmless here."""
        value = self.labels.get(name)
        return figure.safe(value, 64) if value != "" else figure.UNKNOWN


@dataclass(frozen=True)
class MirrorStage:
    """One line: what passed it, what was lost there, and where most of that."""

    name: str
    passed: LedgerCount | None = None
    lost: LedgerCount | None = None
    where: str = ""
    row: LedgerPlace | None = None
    """What its page is about; None: the probe itself."""
    lacks: bool | str = False
    """Whether its rates may be too low, or the mark that they have."""
    lacks_total: bool = False
    has_total: bool = True
    """False: what was lost in all is not known."""
    probe: str = MIRROR


class Missing(NamedTuple):
    """What never came of TCP inside, of all networks together."""

    share: float
    """Of its bytes: now, or of all since the start where none come now."""
    most: LedgerRow
    """The network of which most is lost."""


class MirrorLedger:
    """The stages of one stretch of time, and the verdict on them.

    Rates are of the last interval. With ``mean_s`` they are means of so long a time, of these probes alone. ``told``:
    what the incident says that a row proves.
    """

    def __init__(
        self,
        span: Span,
        manifests: Mapping[str, Manifest],
        told: Callable[[LedgerPlace], str | None],
        mean_s: Mapping[str, float | None] | None = None,
    ) -> None:
        self._span, self._manifests, self._told_of, self._mean_s = span, manifests, told, mean_s
        self._mirror = self._probe(MIRROR)
        self._missing = self._of_tcp()
        self.stages: tuple[MirrorStage, ...] = ()
        if self._mirror is not None and self._mirror.counters:
            self.stages = tuple(self._stages(self._mirror))
        self.verdict = self._verdict()

    def document(self) -> MirrorData | None:
        """As a snapshot has it; None: no mirror was measured."""
        if not self.stages:
            return None
        return MirrorData(self.verdict, [_data(one) for one in self.stages])

    def _stages(self, state: ProbeState) -> Iterator[MirrorStage]:
        """In the order in which a packet passes them."""
        yield from self._before()
        yield self._nic()
        yield from self._at_driver()
        losses = self._rows(MIRROR, "losses")
        full = [row for row in losses if row.labels.get("reason") == BACKLOG]
        yield self._loses(state, "backlog", self._backlog() if full else _NOWHERE)
        where, place = self._by_queue()
        yield replace(self._passes(state, "arrived"), where=where, row=place)
        yield self._loses(state, "firewall, IP, UDP", self._loss([row for row in losses if row not in full]))
        workers = self._rows(MIRROR, "workers")
        yield self._loses(state, "socket", self._worker(_most(workers, "lost")))
        tuples, _ = self._fed_by()
        by = f", fed by {figure.count(tuples)} outer tuples" if tuples else ""
        for name in ("queued", "received"):
            busy = sum(row.per_s(name) > 0 for row in workers)
            if name in state.counters:
                where = f"{figure.things(busy, 'workers')}{by}" if busy else ""
                yield replace(self._passes(state, name), where=where)
        yield from self._copies()

    def _fed_by(self) -> tuple[int, int]:
        """How many outer tuples there are, and workers that get something."""
        tuples = sum(int(row.gauges.get("tuples") or 0) for row in self._rows(MIRROR, "senders"))
        return tuples, sum(row.per_s("queued") > 0 for row in self._rows(MIRROR, "workers"))

    def _verdict(self) -> str:
        """In words; "" before anything was counted."""
        if not self.stages:
            return ""
        known = {name: self._count(MIRROR, name) for name in ("arrived", *LOST.values())}
        rates = {name: one.per_s for name, one in known.items() if one is not None and one.per_s is not None}
        if len(rates) < len(known):
            return "not known now"
        came = rates["arrived"] + rates["lost_backlog"]
        lost = sum(rates.values()) - rates["arrived"]
        before, is_lost_before = self._said_before()
        parts = []
        if not came:
            parts.append("nothing comes")
        elif not lost and is_lost_before:
            parts.append(f"nothing of {figure.number(came)} packets/s is lost on this host")
        elif not lost:
            parts.append(f"whole on this host: nothing of {figure.number(came)} packets/s is lost")
        else:
            worst = max(LOST, key=lambda name: rates[LOST[name]])
            where = next((one.where for one in self.stages if one.name == worst and one.where), "")
            share = min(1.0, lost / came)  # what loses is attached a moment before what counts the arrivals
            if share <= WHOLE_LOSES and not is_lost_before:
                kept = f"at least {100 * (1 - WHOLE_LOSES):.3f} % of {figure.number(came)} packets/s"
                parts.append(f"whole on this host: {kept}, the rest is lost at its {worst}")
            else:
                parts.append(f"loses {figure.percent(100 * share)} on this host, most at its {worst}")
            parts += [where] if where else []
            tuples, busy = self._fed_by()
            if worst == "socket" and 0 < tuples < FEW_TUPLES * busy:
                parts.append(f"{figure.things(tuples, 'outer tuples')} feed {figure.things(busy, 'workers')}")
        return " · ".join([*parts, before])

    def _said_before(self) -> tuple[str, bool]:
        """What is known of losses before this host, and whether there are some."""
        numbered = _most(self._rows(MIRROR, "numbered"), "lost")
        if numbered is not None and (gaps := numbered.per_s("lost")):
            return f"before it {figure.number(gaps)} packets/s are missing by their numbers", True
        if self._missing is None:
            return "what is lost before the NIC is not seen", False
        if not self._missing.share:
            return "before it nothing of TCP inside is missing", False
        return f"before it {figure.percent(100 * self._missing.share, figure.ABOUT)} of TCP inside is lost", True

    # ---- the figures ----

    def _probe(self, name: str) -> ProbeState | None:
        known = self._span.state.probes.get(name)
        if self._mean_s is None:
            return known
        return known if name in self._mean_s else None

    def _count(self, probe: str, name: str) -> LedgerCount | None:
        state = self._probe(probe)
        counter = state.counters.get(name) if state is not None else None
        if counter is None:
            return None
        before = self._span.marks.get(probe, NOTHING).counters.get(name, 0)
        return self._counted(probe, since(counter.count.total, before), counter.count.per_s)

    def _counted(self, probe: str, total: int, per_s: float | None) -> LedgerCount:
        if self._mean_s is None:
            return LedgerCount(total, per_s)
        seconds = self._mean_s.get(probe)
        return LedgerCount(total, total / seconds if seconds else None)

    def _rows(self, probe: str, table: str) -> list[LedgerRow]:
        if self._probe(probe) is None:
            return []
        return [
            LedgerRow(
                row.key,
                row.labels,
                {name: self._counted(probe, count, row.per_s(name)) for name, count in counts.items()},
                row.gauges,
            )
            for row, counts in self._span.moved(probe, table)
        ]

    def _told(self, place: LedgerPlace, otherwise: str) -> tuple[str, LedgerPlace]:
        """What the incident says that a row of a table proves; ``otherwise``: where there is none."""
        return self._told_of(place) or otherwise, place

    def _passes(self, state: ProbeState, name: str) -> MirrorStage:
        return MirrorStage(name, self._count(MIRROR, name), lacks=self._lacks(state))

    def _loses(self, state: ProbeState, name: str, most: tuple[str, LedgerPlace | None]) -> MirrorStage:
        lacks = self._lacks(state)
        return MirrorStage(name, None, self._count(MIRROR, LOST[name]), *most, lacks, not state.is_exact(LOST[name]))

    def _lacks(self, state: ProbeState) -> bool:
        if self._mean_s is None:
            return state.counters_lack_now
        return any(entry in LEDGER_COUNTS and entry != "unlisted" for entry in self._span.ledger(MIRROR))

    # ---- stage by stage ----

    def _of_tcp(self) -> Missing | None:
        """None where no TCP was seen."""
        rows = self._rows(MIRROR, "vnis")
        whole, lost = (sum(row.total(name) for row in rows) for name in ("tcp_bytes", "tcp_missing"))
        if not whole:
            return None
        whole_now, lost_now = (sum(row.per_s(name) for row in rows) for name in ("tcp_bytes", "tcp_missing"))
        return Missing(lost_now / whole_now if whole_now else lost / whole, _most(rows, "tcp_missing") or rows[0])

    def _before(self) -> Iterator[MirrorStage]:
        """By the numbers of GRE and ERSPAN, else by TCP inside: as many packets as its share comes to."""
        numbered, name = _most(self._rows(MIRROR, "numbered"), "lost"), "before this host"
        if numbered is not None:
            who = " ".join(numbered.text(one) for one in ("source", "tunnel", "vni"))
            place = MIRROR, "numbered", numbered.key
            yield MirrorStage(name, None, numbered.counts["lost"], f"gaps in the numbers of {who}", place)
            return
        missing, arrived = self._missing, self._count(MIRROR, "arrived")
        if missing is None or arrived is None:
            return
        came, share = arrived.per_s, missing.share
        lost = LedgerCount(0, None if came is None or share >= 1 else came * share / (1 - share))
        who = " ".join(missing.most.text(one) for one in ("tunnel", "vni"))
        said = f"{figure.percent(100 * share, figure.ABOUT)} of TCP inside is missing, most in {who}" if share else ""
        where, place = self._told((MIRROR, "vnis", missing.most.key), said)
        yield MirrorStage(name, None, lost, where, place, figure.ABOUT, has_total=False)

    def _nic(self) -> MirrorStage:
        """What those NICs count as lost to which the mirror comes: of all their packets."""
        state, name = self._probe(NIC), "NIC, driver"
        if state is None or (self._mean_s is None and not state.measuring):
            return MirrorStage(name, where=f"not watched: {NIC} does not run")
        devices = {row.labels.get("device") for row in self._rows(MIRROR, "queues")}
        counted = [row for row in self._rows(NIC, "losses") if row.labels.get("device") in devices]
        row = _most([row for row in counted if row.labels.get("class") == "loss"], "count")
        if row is None:
            return MirrorStage(name, lost=LedgerCount(0, 0.0))
        where, place = self._told((NIC, "losses", row.key), f"{row.text('device')}: {row.text('meaning')}")
        return MirrorStage(name, None, row.counts["count"], f"{where} (of all its packets)", place)

    def _copies(self) -> Iterator[MirrorStage]:
        """What the worst of the workers misses that read by AF_PACKET or a raw socket, once one has missed some."""
        copies = [row for row in self._rows(PROTOCOLS, "overruns") if row.labels.get("kind") in COPIES]
        row = _most(copies, "drops")
        if row is not None:
            said = f"{row.text('process')}, {row.text('kind')} socket {row.text('inode')}"
            where, place = self._told((PROTOCOLS, "overruns", row.key), said)
            yield MirrorStage("copies", None, row.counts["drops"], where, place)

    def _at_driver(self) -> Iterator[MirrorStage]:
        """What an XDP program saw, if one does: what does not arrive afterwards is lost between."""
        state = self._probe(XDP)
        if state is not None and state.counters:
            where = ", ".join(_xdp_at(point) for point in state.attach) or "its device is gone"
            seen = self._count(XDP, "arrived")
            yield MirrorStage("at the driver", seen, where=where, lacks=state.counters_lack_now, probe=XDP)

    def _by_queue(self) -> tuple[str, LedgerPlace | None]:
        """The receive queue that brings most, with its share."""
        rates = [(row.per_s("packets"), row) for row in self._rows(MIRROR, "queues")]
        rate, most = max(rates, key=lambda one: one[0], default=(0.0, None))
        if most is None or not rate:
            return _NOWHERE
        share = figure.percent(100 * rate / sum(one for one, _ in rates))
        where = f"{share} by queue {most.text('queue')} of {most.text('device')}, at CPU {most.text('cpu')}"
        return where, (MIRROR, "queues", most.key)

    def _backlog(self) -> tuple[str, LedgerPlace | None]:
        row = _most(self._rows(SOFTNET, "cpus"), "dropped")
        if row is None:
            return f"not known of which CPU: {SOFTNET} does not run", None
        return self._told((SOFTNET, "cpus", row.key), f"CPU {row.text('cpu')}: its backlog is full")

    def _loss(self, losses: Sequence[LedgerRow]) -> tuple[str, LedgerPlace | None]:
        row = _most(losses, "packets")
        if row is None:
            return _NOWHERE
        causes = self._manifests[MIRROR].tables["losses"].causes
        cause = causes.of(row.labels) if causes is not None else None
        names = {name: row.text(name) for name in CAUSE_LABELS}
        why = cause.why.format(**names) if cause is not None else names["reason"]
        place = f"{names['device']}: {why}" if row.labels.get("device") else why
        return place, (MIRROR, "losses", row.key)

    def _worker(self, row: LedgerRow | None) -> tuple[str, LedgerPlace | None]:
        if row is None:
            return _NOWHERE
        where = f"{row.text('process')} port {row.text('port')}, socket {row.text('inode')}"
        return self._told((MIRROR, "workers", row.key), f"{where}: its buffer is full")


def _data(stage: MirrorStage) -> MirrorStageData:
    return MirrorStageData(
        stage=stage.name,
        passed=None if stage.passed is None else stage.passed.total,
        passed_per_s=_rounded(stage.passed),
        lost=None if stage.lost is None or not stage.has_total else stage.lost.total,
        lost_per_s=_rounded(stage.lost),
        where=stage.where,
        at_least=stage.lacks is True or stage.lacks_total,
        estimated=stage.lacks == figure.ABOUT,
    )


def _rounded(count: LedgerCount | None) -> float | None:
    return None if count is None or count.per_s is None else round(count.per_s, 3)


def _xdp_at(point: str) -> str:
    """In words; ``point``: xdp:native:eth0. It may come from a far host."""
    way, _, device = figure.safe(point, 64).partition(":")[2].partition(":")
    return f"{way} XDP at {device}"


def _most(found: Iterable[LedgerRow], name: str) -> LedgerRow | None:
    """The row that loses most now; where none does, the one that lost most."""
    lost = [row for row in found if row.total(name)]
    return max(lost, key=lambda row: (row.per_s(name), row.total(name)), default=None)
