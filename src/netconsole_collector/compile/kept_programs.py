"""Loads programs that are kept from an earlier start, in the collector itself.

No compiler is needed, so no process of its own is: it takes some ten milliseconds. A worker (worker.py) would take as
long to start.
"""

import os
from typing import Any, Dict, Optional

from netconsole_collector.compile.job import with_descriptors
from netconsole_collector.compile.refused import ProbeRefused
from netconsole_collector.compile.worker import Worker
from netconsole_collector.types import btf

Json = Dict[str, Any]


def load(job: Json) -> Optional[Json]:
    """The answer of a worker, with descriptors. None: it takes a worker to tell.

    That this host lacks what the probe watches needs none either.
    """
    worker = Worker(job)
    try:
        worker.refuse_early()
        if not os.access(btf.VMLINUX, os.R_OK):  # other types take a long time to check
            return None
        answer = worker.load_kept()
    except ProbeRefused as refused:
        return worker.refused(refused)
    except OSError:
        worker.drop()
        return None
    return None if answer is None else with_descriptors(answer, worker.descriptors)
