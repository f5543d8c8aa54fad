"""Facts of tcx: which BPF programs a device has there (since 6.6), and which filters see only what those let through.

They run before the filters of clsact. A program that passes a packet (TCX_PASS) ends its way there just as one that
drops it: only what each of them leaves to the next one (TCX_NEXT) comes to a filter (tcx_run in net/core/dev.c).
"""

from netconsole_collector.names.fact_keys import key
from netconsole_collector.questions.facts.links import devices
from netconsole_collector.questions.facts.reading import Facts
from netconsole_collector.questions.net import programs
from netconsole_collector.questions.net.rtnetlink import RouteSocket

_SOURCE = "bpf (BPF_PROG_QUERY)"


def collect(facts: Facts) -> None:
    """Adds them under ``tc/``, of this machine. Raises OSError."""
    with RouteSocket() as routes:
        for link in devices(facts.host):
            for hook, kind in programs.TCX.items():
                names = [programs.name_of(one) or str(one) for one in programs.queried(link.number, kind)]
                if not names:
                    continue
                where = ("tc", link.name, "tcx", hook)
                facts.put(key(*where), ", ".join(names), _SOURCE)
                behind = [one.name for one in programs.filters(routes, link.number, hook)]
                if behind:
                    facts.put(key(*where, "hides_from"), ", ".join(behind), _SOURCE)
