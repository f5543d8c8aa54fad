"""The rows of all tables by the names that people know: to find one, or to offer a list of VMs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netconsole.base import figure
from netconsole.telemetry.frames import Label
from netconsole.telemetry.tables import RowState
from netconsole.tui.panes import row_page
from netconsole.tui.scene.scene import Scene, Subject


def named_rows(scene: Scene) -> Iterator[tuple[str, str, Subject]]:
    """The rows of all tables: the name of each, where it stands, and what opens its page."""
    machines = {
        row.labels["device"]: row.labels["vm"]
        for row in _rows(scene)
        if row.labels.get("vm") and row.labels.get("device")
    }
    for probe in scene.state.probes.values():
        manifest = scene.manifests.get(probe.name)
        if manifest is None:
            continue
        for name, table in probe.tables.items():
            for key, row in table.rows.items():
                subject = Subject(probe.name, "table", name, key)
                yield _name(row.labels, machines), row_page.table_title(scene, subject), subject


def machines(scene: Scene) -> list[str]:
    """The names of the VMs of all rows, in the order of the alphabet."""
    return sorted({str(row.labels["vm"]) for row in _rows(scene) if row.labels.get("vm")})


def devices(scene: Scene) -> list[str]:
    """The names of the devices of all rows, in the order of the alphabet."""
    return sorted({name for row in _rows(scene) if isinstance(name := row.labels.get("device"), str) and name})


def _rows(scene: Scene) -> Iterator[RowState]:
    return (
        row for probe in scene.state.probes.values() for table in probe.tables.values() for row in table.rows.values()
    )


def _name(labels: Mapping[str, Label], machines: Mapping[Label, Label]) -> str:
    """First what it is about: its VM and its device. Figures last: they have no room in a narrow column."""
    device = labels.get("device")
    rest = {name: value for name, value in labels.items() if name not in ("vm", "device")}
    names = [value for value in rest.values() if not isinstance(value, int)]
    figures = [f"{name} {value}" for name, value in rest.items() if isinstance(value, int)]
    known = (labels.get("vm") or machines.get(device), device, *names, *figures)
    return " ".join(figure.safe(value, 48) for value in known if value not in (None, ""))
