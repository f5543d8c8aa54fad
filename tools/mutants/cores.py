"""The pure cores, the tests that prove each of them, and the mutants that change nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_CONSOLE = {
    "base": "figure student_t",
    "telemetry": "histogram state tables costs series ledger checkpoint source frames span",
    "findings": "windows of_rules matches open_incident incidents rules causes incident"
    " drop_places places_of_snapshot match saved_log",
    "budget": "governor sampling ladder run_times forecast forecaster enforcer",
    "compare": "significance judge compare metrics baseline reference sums labels facts comparable places sentences"
    " live",
    "snapshot": "builder of_probe document balance balance_watch redact",
    "recording": "recorder writer reader player replay_session flight_recorder",
    "escalation": "escalator crossings investigation",
    "profile": "loader plan escalation_rules profile spending",
    "report": "ticket short_form of_places of_ping of_snapshot of_samples of_comparison of_baselines of_calibration",
    "report/formats": "to_text to_markdown to_html",
    "ping": "breakdown capture model cases words vantage echo_log compared visible_points",
    "ping/analysis": "analyze difference echoes joint_clock measure times figures closure losses advice merge",
    "ping/logs": "drops irq kick rtt text",
    "run": "ping_plan ping_places doctor_text",
    "session": "far_line own_cost",
    "host": "machine",
    "probes": "knobs",
    "calibrate": "estimate store summary",
}
_COLLECTOR = {
    "probe": "config running device_sets followers checks drop_filter",
    "probe/reading": "decode tables histograms records ledger",
    "names": "drop_reasons labels processes vms",
    "types": "kernel_types btf prototypes",
    "kernel": "rings",
    "sources": "base reader machine",
    "sources/net": "softnet sockets protocol_counters qdiscs link_state links carrier",
}
CORES = [
    *(f"src/netconsole/{room}/{name}.py" for room, names in _CONSOLE.items() for name in names.split()),
    *(f"src/netconsole_collector/{room}/{name}.py" for room, names in _COLLECTOR.items() for name in names.split()),
]

_OF_DOCUMENTS = "test_documented.py"
"""Proves constants alone."""

SAME: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("same.toml").read_text())
"""By file: the mutants that nobody can notice, each with the reason. They are not tried."""


def tests_of(file: str) -> list[list[str]]:
    """The tests that prove a file: those of its room that name it, and then all of its room."""
    _, package, room, *within, name = Path(file).with_suffix("").parts
    tests = Path("tests/unit", room) if package == "netconsole" else Path("tests/unit/collector", room)
    module = r"\.".join((package, room, *within))
    names = re.compile(rf"{module}(\.| import .*\b){name}\b")
    found = [str(path) for path in sorted(tests.rglob("test_*.py")) if names.search(path.read_text("utf-8"))]
    return [*([found] if any(not path.endswith(_OF_DOCUMENTS) for path in found) else []), [str(tests)]]
