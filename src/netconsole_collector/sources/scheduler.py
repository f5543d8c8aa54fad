"""Reads what the scheduler says of one thread in /proc, beside its times in schedstat."""

import re
from typing import Dict, Optional

from netconsole_collector.primitives.here import Here, text_of

_STATUS = re.compile(r"^(Cpus_allowed_list|(?:non)?voluntary_ctxt_switches):\s*(\S+)\s*$", re.M)
_MIGRATIONS = re.compile(r"^se\.nr_migrations\s*:\s*(\d{1,20})\s*$", re.M)
VOLUNTARY, INVOLUNTARY = "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"
_CUT = "…"


def status_of(host: Here, where: str) -> Dict[str, str]:
    """Of the file status (proc(5)): how often it gave its CPU away, or had it taken, and where it may run."""
    return dict(_STATUS.findall(text_of(host, where + "/status")))


def count_of(status: Dict[str, str], name: str) -> Optional[int]:
    """One of these counts; None where it is not told."""
    text = status.get(name, "")
    return int(text) if text.isdigit() and len(text) < 20 else None


def allowed_of(status: Dict[str, str], limit: int) -> Optional[str]:
    """The list of CPUs on which it may run, as 0-3,8, in ``limit`` characters; None where it is not told."""
    text = status.get("Cpus_allowed_list")
    return text if text is None or len(text) <= limit else text[: limit - 1].rpartition(",")[0] + _CUT


def migrations_of(host: Here, where: str) -> Optional[int]:
    """How often the scheduler has moved it to another CPU (proc_sched_show_task, kernel/sched/debug.c).

    None on a kernel without CONFIG_SCHED_DEBUG (from 6.15 on all have it).
    """
    found = _MIGRATIONS.search(text_of(host, where + "/sched"))
    return int(found.group(1)) if found else None
