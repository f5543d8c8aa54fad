"""What is defined before a probe's source, from its manifest: bounds of tables, numbers of knobs and sets of devices.

All of it are names and whole numbers: no text of a manifest or of a user gets into C.
"""

import re
from typing import Any, Dict

from netconsole_collector.compile.refused import ProbeRefused
from netconsole_collector.probe import config, device_sets

_DEFAULT_ROWS = {"tables": 1024, "histograms": 8192, "records": 1024}
"""NC_ROWS_… of a manifest without max_rows (docs/reference/probes.md)."""

Json = Dict[str, Any]


def definitions(spec: Json) -> Dict[str, int]:
    """Value by name. Raises ProbeRefused for what is no name in C."""
    found = {"NC_EVENTS": int(bool(spec.get("events")))}
    for section, default in _DEFAULT_ROWS.items():
        for name, table in spec.get(section, {}).items():
            found["NC_ROWS_" + _checked(section, name)] = int(table.get("max_rows", default))
    knobs = spec.get("knobs", {})
    for place, name in enumerate(config.own_names(knobs)):
        found["NC_KNOB_" + _checked("knobs", name)] = place
    for number, name in enumerate(device_sets.names_of(knobs), 1):
        found["NC_SET_" + _checked("knobs", name)] = number
    return found


def _checked(section: str, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise ProbeRefused("{} {!r}: not a name".format(section, name))
    return name
