"""Loads programs that another host has compiled for this kernel. They come with the load command.

Nothing is compiled, so this needs no process of its own: it takes some ten milliseconds.
"""

import base64
import binascii
import zlib
from typing import Any, Dict

from netconsole_collector.compile import compiled
from netconsole_collector.compile.job import with_descriptors
from netconsole_collector.compile.refused import ProbeRefused
from netconsole_collector.compile.worker import Worker

Json = Dict[str, Any]


def pack(programs: compiled.Compiled) -> str:
    """As text, for the command."""
    return base64.b64encode(zlib.compress(compiled.encode(programs), 9)).decode()


def load(job: Json) -> Json:
    """The answer of a worker (worker.py), with descriptors. ``job["compiled"]`` is what :func:`pack` returns.

    Or it is {"state", "why", "help"} when the probe could not be compiled. That this host lacks what the probe watches
    is still said first.
    """
    worker = Worker(job)
    is_plain = True
    try:
        what = job["compiled"]
        if isinstance(what, dict):
            worker.refuse_early()
            raise ProbeRefused(str(what["why"]), str(what["state"]), what.get("help"))
        programs = compiled.decode(zlib.decompress(base64.b64decode(what)))
        is_plain = programs.way == compiled.PLAIN
        return with_descriptors(worker.load(programs), worker.descriptors)
    except ProbeRefused as refused:
        answer = worker.refused(refused)
    except (ValueError, KeyError, TypeError, binascii.Error, zlib.error) as error:
        why = "the programs that were sent cannot be read: {}: {}".format(type(error).__name__, error)
        answer = worker.refused(ProbeRefused(why))
    answer["plain"] = is_plain
    return answer
