"""Question `settings`: whole numbers below /proc/sys/net of a network namespace.

Each is called by the last part of its name, as `icmp_echo_ignore_all` of IPv4 or `echo_ignore_all` of IPv6. It is null
where this kernel has no such setting.
"""

import re
from typing import Any

from netconsole_collector.questions.known import BadQuestion, Json, text
from netconsole_collector.questions.within import sysctl, within

_NAME = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+)+")


def answer(arguments: Json) -> Any:
    """``names``: of the settings, with spaces between, as "ipv4/ip_forward"."""
    names = text(arguments, "names").split()
    if not all(_NAME.fullmatch(name) for name in names):
        raise BadQuestion("names: expected names of settings below /proc/sys/net, as ipv4/ip_forward")
    return within(arguments, lambda: {name.rpartition("/")[2]: sysctl(name) for name in names})
