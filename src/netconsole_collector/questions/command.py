"""Question `command`: what a program says that only reads. No shell takes part.

`output`: what it wrote, the end of it where that is longer than is kept. `status`: how it ended. `seconds`: how long it
took. `cut`: whether more was written.
"""

import os
import re
import select
import shlex
import subprocess
import time
from typing import Any, Dict, FrozenSet, List

from netconsole_collector.questions.known import BadQuestion, Json, text
from netconsole_collector.questions.net.rule_match import is_plain
from netconsole_collector.questions.within import within

MAX_OUTPUT_BYTES = 256 * 1024
LIMIT_S = 8.0
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_CHANGES = frozenset(
    "a add append associate attach change create d del delete detach edit exec f flush insert load mod-flows new p pin"
    " monitor purge r rename replace reset restore s set snoop start stop tracelog update w x z".split()
)
"""Words by which these programs change something."""
_OPTIONS: Dict[str, FrozenSet[str]] = {
    "cat": frozenset(()),
    "conntrack": frozenset(("-D", "-F", "-I", "-U", "--delete", "--flush", "--create", "--update", "-E", "--event")),
    "iptables": frozenset(("-A", "-D", "-F", "-I", "-N", "-P", "-R", "-X", "-Z", "-E")),
    "sysctl": frozenset(("-w", "--write", "-p", "--load", "--system")),
    "nstat": frozenset(("-r", "--reset", "-d", "--scan", "-n", "--noupdate")),
    "ss": frozenset(("-K", "--kill", "-E", "--events", "-D", "--diag")),
    "free": frozenset(("-s", "--seconds")),
    "lsblk": frozenset(()),
    "ps": frozenset(()),
    "iw": frozenset(()),
    "ip": frozenset(("-b", "-batch", "--batch", "-force")),
    "tc": frozenset(("-b", "-batch", "--batch", "-force")),
    "ausearch": frozenset(()),
    "bridge": frozenset(("-b", "-batch", "--batch", "-force")),
    "nft": frozenset(()),
    "bpftool": frozenset(("batch", "-b")),
    "ethtool": frozenset(()),
    "ovs-appctl": frozenset(()),
    "ovs-ofctl": frozenset(()),
    "ovs-vsctl": frozenset(()),
    "virsh": frozenset(()),
}
"""The programs that may run, and the options by which they change something or never end."""
for _name in ("ip6tables", "iptables-legacy", "ip6tables-legacy"):
    _OPTIONS[_name] = _OPTIONS["iptables"]
_FILES = re.compile(
    r"/proc/(net/.+|interrupts|softirqs|meminfo|pressure/io|[^/]+/(status|wchan))|/sys/fs/cgroup.*/(cpu\.stat|io\.max)"
    r"|/sys/class/net/[^/]+/(gro_flush_timeout|napi_defer_hard_irqs)"
    r"|/sys/block/[^/]+/(queue/(scheduler|nr_requests|write_cache)|device/queue_depth|inflight)"
)
"""What cat may show."""
_NFT_OPTIONS = ("-a", "-n", "-nn", "-s", "-j")
_SHOWS = {
    "ethtool": ("-S", "-k", "-g", "-l", "-n", "-x", "-c", "-a", "-i"),
    "iw": ("link", "dump", "info"),
    "ovs": (
        "show",
        "list",
        "dump",
        "get",
        "find",
        "stats",
        "trace",
        "detrace",
        "dpctl",
        "dpif",
        "coverage",
        "fdb",
        "ofproto",
    ),
    "virsh": ("domstate", "dominfo", "domstats", "domifstat", "domblkstat", "list", "vcpuinfo"),
}
"""One of these must be there. Names with a hyphen or a slash count by their parts."""
_OVS_CHANGES = frozenset("clear del disable enable exit flush mod reconnect revalidate".split())


def answer(arguments: Json) -> Any:
    """Of ``command``, a line as in a shell, in the namespace ``netns``."""
    words = checked(text(arguments, "command"))
    return within(arguments, lambda: _run(words))


def checked(line: str) -> List[str]:
    """The words of a command that only reads. Raises BadQuestion for any other one."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise BadQuestion("command: {}".format(error)) from None
    program = words[0] if words else ""
    if program not in _OPTIONS:
        raise BadQuestion("command: {!r} is not run: only {} are".format(program[:40], ", ".join(sorted(_OPTIONS))))
    if program == "nft":
        return _checked_nft(words)
    for word in words[1:]:
        is_option = word.startswith("-")
        if word in _OPTIONS[program] or (not is_option and word in _CHANGES) or (program == "sysctl" and "=" in word):
            raise BadQuestion("command: it is not run, because {!r} may change something".format(word[:40]))
    family = program.partition("-")[0]
    parts = [part for word in words[1:] for part in ([word] if family != "ovs" else re.split("[-/]", word))]
    if program == "cat" and not all(_FILES.fullmatch(word) and ".." not in word for word in words[1:]):
        raise BadQuestion(
            "command: cat shows files of /proc, devices and control groups that netconsole names, and no other"
        )
    if program == "ip" and any("xfrm".startswith(word) for word in words[1:]) and not {"nokeys", "policy"} & set(words):
        raise BadQuestion("command: it would show keys, which nobody may take along: add nokeys")
    if family in _SHOWS and not any(part in _SHOWS[family] for part in parts):
        raise BadQuestion("command: of {} only what shows something is run".format(program))
    if family == "ovs" and not (_CHANGES | _OVS_CHANGES).isdisjoint(parts):
        raise BadQuestion("command: it is not run, because it may change something")
    return words


def _checked_nft(words: List[str]) -> List[str]:
    """Of names like those of commands, too. It joins its words to a program, so no name may end the command."""
    said = [word for word in words[1:] if word not in _NFT_OPTIONS]
    if said[:1] != ["list"] or not all(map(is_plain, said)):
        raise BadQuestion("command: of nft only list is run, with plain names")
    return words


def _run(words: List[str]) -> Json:
    """In the namespace of the calling thread."""
    began = time.monotonic()
    environment = {"PATH": PATH, "LC_ALL": "C", "HOME": "/"}
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd="/"
        )
    except FileNotFoundError:
        raise BadQuestion("command: {} is not installed there".format(words[0])) from None
    kept, length, until = b"", 0, began + LIMIT_S
    try:
        with process:
            output = process.stdout.fileno()  # type: ignore[union-attr]
            while select.select([output], [], [], max(0.0, until - time.monotonic()))[0]:
                chunk = os.read(output, 65536)
                if not chunk:
                    break
                length += len(chunk)
                kept = (kept + chunk)[-MAX_OUTPUT_BYTES:]
            else:
                process.kill()  # one that never ends
    finally:
        process.kill()
    return {
        "output": kept.decode("utf-8", "backslashreplace"),
        "status": process.returncode,
        "seconds": round(time.monotonic() - began, 3),
        "cut": length > len(kept),
    }
