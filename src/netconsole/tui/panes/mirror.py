"""The ledger of a mirror: what came to each stage between the NIC and the workers, and what was lost there.

What is lost before the first counter is invisible, or estimated by what is missing of TCP inside: a mirror that loses
nothing here is whole from here on, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from netconsole.base import figure
from netconsole.probes.causes import CAUSE_LABELS
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import CountState, RowState
from netconsole.tui.panes.common.columns import label_text
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import why_silent
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import Tone

MIRROR, XDP, NIC, SOFTNET, PROTOCOLS = "mirror", "mirror_xdp", "nic_counters", "softnet", "protocol_counters"
COPIES = ("packet", "raw")
"""Sockets that get a copy of each packet: what one of them misses is lost for its program alone."""
BACKLOG = "CPU_BACKLOG"
LOST = {"backlog": "lost_backlog", "firewall, IP, UDP": "lost_stack", "socket": "lost_socket"}
"""The counter of each stage of this host that loses, in order."""
_NOWHERE = ("", None)


@dataclass(frozen=True)
class MirrorStage:
    """One line: what passed it, what was lost there, and where most of that."""

    name: str
    passed: CountState | None = None
    lost: CountState | None = None
    where: str = ""
    subject: Subject | None = None
    """What its page is about; None: the probe itself."""
    lacks: bool | str = False
    """Whether its rates may be too low, or the mark that they have."""
    lacks_total: bool = False
    has_total: bool = True
    """False: what was lost in all is not known."""


def _count(name: str, tone: Tone = "") -> Callable[[MirrorStage], Cell]:
    def made(stage: MirrorStage) -> Cell:
        count: CountState | None = getattr(stage, name)
        if count is None or count.per_s is None:
            return Cell("–" if name == "lost" or count is not None else "", None, "dim")
        return Cell(figure.number(count.per_s, stage.lacks), count.per_s, tone if count.per_s else "")

    return made


def _total(stage: MirrorStage) -> Cell:
    if stage.lost is None or not stage.has_total:
        return Cell("")
    return Cell(figure.count(stage.lost.total, stage.lacks_total), stage.lost.total)


COLUMNS = (
    TableColumn("stage", "stage", 17, value=lambda stage: Cell(stage.name, stage.name)),
    TableColumn("passed", "pkts/s", 8, right=True, value=_count("passed")),
    TableColumn("lost", "lost/s", 8, right=True, value=_count("lost", "act")),
    TableColumn("total", "lost", 9, right=True, spare=2, value=_total),
    TableColumn("where", "where most", 30, grow=1, most=120, spare=1, value=lambda stage: Cell(stage.where)),
)


def block() -> Block:
    """The stages in the order in which a packet passes them."""
    return Block("mirror-ledger", title, COLUMNS, rows, lambda scene: why_silent(scene, MIRROR), MIRROR)


def rows(scene: Scene) -> list[TableRow]:
    """A line for each stage; none before anything was counted."""
    state = scene.state.probes.get(MIRROR)
    if state is None or not state.counters:
        return []
    return [
        TableRow(one.subject or Subject(MIRROR, "probe", one.name, ()), _cells(one)) for one in stages(scene, state)
    ]


def _cells(stage: MirrorStage) -> dict[str, Cell]:
    return {column.name: column.value(stage) for column in COLUMNS}


def stages(scene: Scene, state: ProbeState) -> Iterator[MirrorStage]:
    """In the order in which a packet passes them."""
    yield from _before(scene, state)
    yield _nic(scene)
    yield from _at_driver(scene)
    losses = list(scene.state.rows(MIRROR, "losses"))
    full = [row for row in losses if row.labels.get("reason") == BACKLOG]
    yield _stage(state, "backlog", _backlog(scene) if full else _NOWHERE)
    where, subject = _by_queue(scene)
    yield replace(_passed(state, "arrived"), where=where, subject=subject)
    yield _stage(state, "firewall, IP, UDP", _loss(scene, [row for row in losses if row not in full]))
    workers = scene.state.rows(MIRROR, "workers")
    yield _stage(state, "socket", _worker(scene, _most(workers, "lost")))
    tuples = sum(int(row.gauges.get("tuples") or 0) for row in scene.state.rows(MIRROR, "senders"))
    by = f", fed by {figure.count(tuples)} outer tuples" if tuples else ""
    for name in ("queued", "received"):
        busy = sum(row.moved(name) for row in workers)
        if name in state.counters:
            yield replace(_passed(state, name), where=f"{figure.count(busy)} workers{by}" if busy else "")
    yield from _copies(scene)


def title(scene: Scene) -> str:
    """The verdict, in words."""
    state = scene.state.probes.get(MIRROR)
    parts = ["Mirror: from NIC to worker"]
    if state is None or not state.counters:
        return parts[0]
    known = {name: state.counters[name].count.per_s for name in ("arrived", *LOST.values()) if name in state.counters}
    rates = [rate for rate in known.values() if rate is not None]
    if len(rates) < 1 + len(LOST):
        return f"{parts[0]} · not known now"
    came = (known["arrived"] or 0.0) + (known["lost_backlog"] or 0.0)
    lost = sum(rates) - (known["arrived"] or 0.0)
    if not came:
        parts.append("nothing comes")
    elif not lost:
        parts.append(f"nothing of {figure.number(came)} packets/s is lost on this host")
    else:
        worst = max(LOST, key=lambda name: known[LOST[name]] or 0.0)
        where = next((one.where for one in stages(scene, state) if one.name == worst and one.where), "")
        parts.append(f"loses {figure.percent(100 * lost / came)} on this host, most at its {worst}")
        parts += [where] if where else []
    missing = Missing.of(scene)
    if missing is None:
        parts.append("what is lost before the NIC is not seen")
    elif not missing.share:
        parts.append("before it nothing of TCP inside is missing")
    else:
        parts.append(f"before it {figure.percent(100 * missing.share, figure.ABOUT)} of TCP inside is lost")
    return " · ".join(parts)


@dataclass(frozen=True)
class Missing:
    """What never came of TCP inside, of all networks together."""

    share: float
    """Of its bytes: now, or of all since the start where none come now."""
    most: RowState
    """The network of which most is lost."""

    @classmethod
    def of(cls, scene: Scene) -> Missing | None:
        """None where no TCP was seen."""
        rows = list(scene.state.rows(MIRROR, "vnis"))
        whole, lost = (sum(row.total(name) or 0 for row in rows) for name in ("tcp_bytes", "tcp_missing"))
        if not whole:
            return None
        whole_now, lost_now = (sum(row.per_s(name) or 0.0 for row in rows) for name in ("tcp_bytes", "tcp_missing"))
        most = _most(rows, "tcp_missing") or rows[0]
        return cls(lost_now / whole_now if whole_now else lost / whole, most)


def _before(scene: Scene, state: ProbeState) -> Iterator[MirrorStage]:
    """By the numbers of GRE and ERSPAN, else by TCP inside: as many packets as its share comes to."""
    numbered, name = _most(scene.state.rows(MIRROR, "numbered"), "lost"), "before this host"
    if numbered is not None:
        who = " ".join(label_text(numbered.labels.get(one)) for one in ("source", "tunnel", "vni"))
        place = Subject(MIRROR, "table", "numbered", numbered.key)
        yield MirrorStage(name, None, numbered.counts["lost"], f"gaps in the numbers of {who}", place)
        return
    missing, arrived = Missing.of(scene), state.counters.get("arrived")
    if missing is None or arrived is None:
        return
    came, share = arrived.count.per_s, missing.share
    lost = CountState(0, None, None if came is None or share >= 1 else came * share / (1 - share))
    who = " ".join(label_text(missing.most.labels.get(one)) for one in ("tunnel", "vni"))
    said = f"{figure.percent(100 * share, figure.ABOUT)} of TCP inside is missing, most in {who}" if share else ""
    where, place = _told(scene, Subject(MIRROR, "table", "vnis", missing.most.key), said)
    yield MirrorStage(name, None, lost, where, place, figure.ABOUT, has_total=False)


def _passed(state: ProbeState, name: str) -> MirrorStage:
    counter = state.counters.get(name)
    return MirrorStage(name, counter.count if counter is not None else None, lacks=state.counters_lack_now)


def _stage(state: ProbeState, name: str, most: tuple[str, Subject | None]) -> MirrorStage:
    counter = state.counters.get(LOST[name])
    count = counter.count if counter is not None else None
    return MirrorStage(name, None, count, *most, state.counters_lack_now, not state.is_exact(LOST[name]))


def _nic(scene: Scene) -> MirrorStage:
    """What those NICs count as lost to which the mirror comes: of all their packets."""
    state, name = scene.state.probes.get(NIC), "NIC, driver"
    if state is None or not state.measuring:
        return MirrorStage(name, where=f"not watched: {NIC} does not run")
    devices = {row.labels.get("device") for row in scene.state.rows(MIRROR, "queues")}
    counted = scene.state.rows(NIC, "losses")
    row = _most(
        [row for row in counted if row.labels.get("device") in devices and row.labels.get("class") == "loss"], "count"
    )
    if row is None:
        return MirrorStage(name, lost=CountState(0, 0, 0.0))
    meaning = f"{label_text(row.labels.get('device'))}: {label_text(row.labels.get('meaning'))}"
    where, subject = _told(scene, Subject(NIC, "table", "losses", row.key), meaning)
    return MirrorStage(name, None, row.counts["count"], f"{where} (of all its packets)", subject)


def _copies(scene: Scene) -> Iterator[MirrorStage]:
    """What the worst of the workers misses that read by AF_PACKET or a raw socket, once one has missed something."""
    row = _most([row for row in scene.state.rows(PROTOCOLS, "overruns") if row.labels.get("kind") in COPIES], "drops")
    if row is not None:
        who, kind, inode = (label_text(row.labels.get(name)) for name in ("process", "kind", "inode"))
        where, subject = _told(scene, Subject(PROTOCOLS, "table", "overruns", row.key), f"{who}, {kind} socket {inode}")
        yield MirrorStage("copies", None, row.counts["drops"], where, subject)


def _at_driver(scene: Scene) -> Iterator[MirrorStage]:
    """What an XDP program saw, if one does: what does not arrive afterwards is lost between."""
    state = scene.state.probes.get(XDP)
    if state is not None and state.counters:
        subject = Subject(XDP, "probe", "arrived", ())
        where = ", ".join(_xdp_at(point) for point in state.attach) or "its device is gone"
        yield replace(_passed(state, "arrived"), name="at the driver", where=where, subject=subject)


def _xdp_at(point: str) -> str:
    """In words; ``point``: xdp:native:eth0. It may come from a far host."""
    way, _, device = figure.safe(point, 64).partition(":")[2].partition(":")
    return f"{way} XDP at {device}"


def _most(found: Iterable[RowState], name: str) -> RowState | None:
    """The row that loses most now; where none does, the one that lost most."""
    lost = [row for row in found if row.total(name)]
    return max(lost, key=lambda row: (row.per_s(name) or 0.0, row.total(name) or 0), default=None)


def _told(scene: Scene, subject: Subject, otherwise: str) -> tuple[str, Subject]:
    """What the incident says that a row of a table proves; ``otherwise``: where there is none."""
    of_row = (one.sentence for one in scene.findings if any(proof.row == subject for proof in one.evidence))
    return next(of_row, otherwise), subject


def _by_queue(scene: Scene) -> tuple[str, Subject | None]:
    """The receive queue that brings most, with its share."""
    rates = [(row.per_s("packets") or 0.0, row) for row in scene.state.rows(MIRROR, "queues")]
    rate, most = max(rates, key=lambda one: one[0], default=(0.0, None))
    if most is None or not rate:
        return _NOWHERE
    device, queue, cpu = (label_text(most.labels.get(name)) for name in ("device", "queue", "cpu"))
    where = f"{figure.percent(100 * rate / sum(one for one, _ in rates))} by queue {queue} of {device}, at CPU {cpu}"
    return where, Subject(MIRROR, "table", "queues", most.key)


def _backlog(scene: Scene) -> tuple[str, Subject | None]:
    row = _most(scene.state.rows(SOFTNET, "cpus"), "dropped")
    if row is None:
        return f"not known of which CPU: {SOFTNET} does not run", None
    subject = Subject(SOFTNET, "table", "cpus", row.key)
    return _told(scene, subject, f"CPU {label_text(row.labels.get('cpu'))}: its backlog is full")


def _loss(scene: Scene, losses: Sequence[RowState]) -> tuple[str, Subject | None]:
    row = _most(losses, "packets")
    if row is None:
        return _NOWHERE
    causes = scene.manifests[MIRROR].tables["losses"].causes
    cause = causes.of(row.labels) if causes is not None else None
    names = {name: label_text(row.labels.get(name)) for name in CAUSE_LABELS}
    why = cause.why.format(**names) if cause is not None else names["reason"]
    place = f"{names['device']}: {why}" if row.labels.get("device") else why
    return place, Subject(MIRROR, "table", "losses", row.key)


def _worker(scene: Scene, row: RowState | None) -> tuple[str, Subject | None]:
    if row is None:
        return _NOWHERE
    who = label_text(row.labels.get("process"))
    where = f"{who} port {label_text(row.labels.get('port'))}, socket {label_text(row.labels.get('inode'))}"
    return _told(scene, Subject(MIRROR, "table", "workers", row.key), f"{where}: its buffer is full")
