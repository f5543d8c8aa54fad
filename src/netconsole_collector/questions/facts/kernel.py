"""Facts of the kernel: version, command line, parameters of virtualisation modules, net.* sysctls, conntrack limits."""

import re

from netconsole_collector.names.fact_keys import key
from netconsole_collector.questions.facts.reading import Facts, decoded

MODULES = (
    "kvm",
    "kvm_intel",
    "kvm_amd",
    "vhost",
    "vhost_net",
    "tun",
    "tap",
    "openvswitch",
    "haltpoll",
    "cpuidle_haltpoll",
)
_PER_DEVICE = ("conf", "neigh")
"""Directories with one directory per device. A hypervisor has thousands, and their differences rarely matter."""
_NOT_SETTINGS = ("nf_conntrack_count", "flush", "stable_secret", "tcp_fastopen_key", "netdev_rss_key")
"""Files among the settings that are states, triggers or keys: a snapshot goes to other people."""
_SYSCTLS = "/proc/sys/net"
_MAX_SYSCTLS = 2000
_MAX_FILES = 10000
_MAX_SYSCTL_BYTES = 4096


def collect(facts: Facts) -> None:
    """Add the facts under ``kernel/`` and ``module/``."""
    facts.file("kernel/release", "/proc/sys/kernel/osrelease")
    facts.file("kernel/build", "/proc/sys/kernel/version")
    facts.file("kernel/command_line", "/proc/cmdline")
    facts.file("kernel/tainted", "/proc/sys/kernel/tainted", int)
    facts.file("kernel/lockdown", "/sys/kernel/security/lockdown", _bracketed)
    for name in MODULES:
        _module(facts, name)


def sysctls(facts: Facts) -> None:
    """Add the facts under ``sysctl/``: all of net.*, but of per-device settings only ``all`` and ``default``."""
    without = dict.fromkeys(_PER_DEVICE, ("all", "default"))
    found = facts.host.below(_SYSCTLS, without, _MAX_FILES)
    names = [name for name in found if name.rpartition("/")[2] not in _NOT_SETTINGS]
    added = 0
    for name in names:
        path = f"{_SYSCTLS}/{name}"
        try:
            value = " ".join(decoded(facts.host.read(path, _MAX_SYSCTL_BYTES)).split())
        except OSError:
            continue  # some cannot be read even by root: no settings
        added += 1
        if added > _MAX_SYSCTLS:
            facts.unknown("sysctl/more", _SYSCTLS, f"only the first {_MAX_SYSCTLS} sysctls are listed")
            return
        facts.put(key("sysctl", "net." + name.replace("/", ".")), value, path)


def conntrack(facts: Facts) -> None:
    """Add the facts under ``conntrack/``: the limits, and how full the table is now."""
    where = "/proc/sys/net/netfilter"
    if not facts.exists(f"{where}/nf_conntrack_max"):
        facts.unknown("conntrack/max", f"{where}/nf_conntrack_max", "connection tracking is not loaded")
        return
    facts.file("conntrack/max", f"{where}/nf_conntrack_max", int)
    facts.file("conntrack/buckets", f"{where}/nf_conntrack_buckets", int)
    facts.file("conntrack/entries", f"{where}/nf_conntrack_count", int, volatile=True)
    if facts.exists("/sys/module/nf_conntrack/parameters/hashsize"):
        facts.file("conntrack/hashsize", "/sys/module/nf_conntrack/parameters/hashsize", int)


def _module(facts: Facts, name: str) -> None:
    where = f"/sys/module/{name}"
    if not facts.exists(where):
        facts.put(key("module", name, "loaded"), False, where)
        return
    facts.put(key("module", name, "loaded"), True, where)
    if facts.exists(f"{where}/version"):
        facts.file(key("module", name, "version"), f"{where}/version")
    for parameter in facts.entries(f"{where}/parameters"):
        facts.file(key("module", name, parameter), f"{where}/parameters/{parameter}")


def _bracketed(text: str) -> str:
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else text
