"""Checks the shape of a manifest, as far as the collector relies on it."""

import json
import re
from typing import Any, Dict, List, Optional

from netconsole_collector.names import drop_reasons
from netconsole_collector.probe.reading import decode, examples


def spec_problem(spec: Dict[str, Any]) -> Optional[str]:
    """What is wrong with the manifest; None when nothing is.

    The console has checked it before, with better messages. Here is only what would otherwise end in a traceback.
    """
    try:
        for program in spec["programs"]:
            for alternative in program["attach"]:
                if not isinstance(alternative["point"], str) or not isinstance(alternative["function"], str):
                    return "program {}: point and function are texts".format(program["name"])
            if not isinstance(program.get("unless", ""), str):
                return "program {}: unless is a text".format(program["name"])
            if not program["attach"]:
                return "program {}: no attach point".format(program["name"])
        row = ("key", "value")
        layouts = {"tables": row, "histograms": ("key",), "records": row, "events": ("record",)}
        for section, keys in layouts.items():
            for name, part in spec.get(section, {}).items():
                if "sums" not in part:
                    part.setdefault("map", "nc_events" if section == "events" else name)
                elif not isinstance(spec["tables"][part["sums"]]["most"], int):
                    return "table {}: sums is a table that has most".format(name)
                for key in keys:
                    decode.Layout(part[key])
                if "example" in part and not examples.is_example(part["example"]):
                    return "table {}: its example has a map, a record and in that the time".format(name)
        for name, part in spec.get("records", {}).items():
            if not isinstance(part["since"], str) or not isinstance(spec["knobs"][part["keep"]], (int, float)):
                return "records {}: since is a value, keep a knob".format(name)
        for name, counter in spec.get("counters", {}).items():
            if not isinstance(counter["slot"], int):
                return "counter {}: no slot".format(name)
        names = {program["name"]: program["measures"] for program in spec["programs"]} if spec.get("checks") else {}
        for check in spec.get("checks", []):
            if not isinstance(check["slot"], int) or not isinstance(check["says"], str):
                return "check {}: slot is a number and says a text".format(check["slot"])
            if not all(name in names for name in check["programs"]):
                return "check {}: it names a program that there is not".format(check["slot"])
        spec["probe"].get("modes")
        if not isinstance(spec.get("knobs", {}), dict):
            return "knobs: expected a table"
    except (KeyError, TypeError, AttributeError) as error:
        return "{} is missing or of the wrong type".format(error)
    except ValueError as error:
        return str(error)
    return None if spec["programs"] else "no programs"


def named_modules(spec: Dict[str, Any]) -> List[str]:
    """Kernel modules whose types the probe names."""
    return [name for name in spec["probe"].get("btf_modules", []) if re.fullmatch(r"[\w-]+", name)]


def typed_modules(spec: Dict[str, Any]) -> List[str]:
    """Modules whose types are read if they are loaded: those named, and those with drop reasons of their own."""
    return sorted(set(named_modules(spec) + (drop_reasons.MODULES if wants_drop_reasons(spec) else [])))


def wants_drop_reasons(spec: Dict[str, Any]) -> bool:
    return '"drop_reason"' in json.dumps(spec)
