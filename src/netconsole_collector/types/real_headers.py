"""For a kernel without BTF: its installed headers, and the same facts about it, found out with the compiler.

This is slower than BTF (a compile takes seconds) and less certain, so it is only used where there is no BTF.
"""

import glob
import os
import re
from typing import Callable, Dict, List, NamedTuple, Optional, Set

INCLUDES = """
linux/kconfig.h linux/types.h linux/skbuff.h linux/netdevice.h linux/if_ether.h linux/if_vlan.h linux/if_arp.h
linux/ip.h linux/ipv6.h linux/tcp.h linux/udp.h linux/icmp.h linux/icmpv6.h linux/sctp.h linux/interrupt.h
linux/sched.h linux/socket.h linux/eventfd.h linux/nsproxy.h linux/pid_namespace.h linux/errno.h net/sock.h
net/inet_sock.h net/tcp.h net/udp.h net/sch_generic.h net/net_namespace.h net/neighbour.h net/dropreason.h
"""
"""The headers with the types that probes need. Those that a kernel lacks are left out."""

_RELEASE = os.uname().release
_ROOTS = ("/lib/modules/{0}/source", "/lib/modules/{0}/build", "/usr/src/linux-headers-{0}")
_KHEADERS = "/sys/kernel/kheaders.tar.xz"
"""CONFIG_IKHEADERS (5.2): the kernel contains its headers, and BCC unpacks them."""
_MAX_ARGUMENTS = 12
_QUESTIONS = "questions.c"
_WRONG_LINE = re.compile(re.escape(_QUESTIONS) + r":(\d+):\d+: (?:fatal )?error:")
_EVENT = (
    r"\b(?:TRACE_EVENT|DEFINE_EVENT|DECLARE_TRACE)\w*\(\s*(?:\w+\s*,\s*)?{}\s*,\s*TP_PROTO\(((?:[^()]|\([^()]*\))*)\)"
)


class _Question(NamedTuple):
    """A line of C. If it compiles, the name is to be defined with this value."""

    name: str
    value: int
    line: str


def installed() -> Optional[str]:
    """Where the running kernel's headers are; None when they are not installed."""
    found = [root.format(_RELEASE) for root in _ROOTS if os.path.isdir(os.path.join(root.format(_RELEASE), "include"))]
    if found:
        return found[0]
    return _KHEADERS if os.path.exists(_KHEADERS) else None


def prologue() -> str:
    """The #include lines before the source of a probe."""
    lines = ["#if __has_include(<{0}>)\n#include <{0}>\n#endif".format(name) for name in INCLUDES.split()]
    return "\n".join(lines) + "\n"


def facts(used: Set[str], root: str, errors_of: Callable[[str], str]) -> Dict[str, int]:
    """The HAVE_… and NARGS_… names that are true, as kernel_types.facts finds them in BTF.

    ``errors_of`` compiles a text and returns the errors of the compiler.
    """
    found = {}
    questions: List[_Question] = []
    for name in sorted(used):
        if name.startswith("HAVE_"):
            questions += _existence(name)
        elif name.startswith("NARGS_"):
            count = _tracepoint_arguments(name[len("NARGS_") :], root)
            if count is not None:
                found[name] = count
            else:
                questions += _arity(name)
    text = prologue() + '#line 1 "{}"\n'.format(_QUESTIONS) + "\n".join(question.line for question in questions) + "\n"
    wrong = {int(number) for number in _WRONG_LINE.findall(errors_of(text))} if questions else set()
    for number, question in enumerate(questions, 1):
        if number not in wrong:
            found[question.name] = question.value
    return found


def _existence(name: str) -> List[_Question]:
    words = name[len("HAVE_") :].split("_")
    whole = "_".join(words)
    bodies = ["return sizeof(struct {});".format(whole), "return (unsigned long){};".format(whole)]
    for split in range(1, len(words)):
        record, member = "_".join(words[:split]), "_".join(words[split:])
        bodies.append("struct {} *p = 0; (void)p->{}; return 0;".format(record, member))
    return [_question(name, 1, number, body) for number, body in enumerate(bodies)]


def _arity(name: str) -> List[_Question]:
    function = name[len("NARGS_") :]
    calls = ["{}({})".format(function, ", ".join("0" * count)) for count in range(_MAX_ARGUMENTS + 1)]
    return [_question(name, count, count, "return sizeof({});".format(call)) for count, call in enumerate(calls)]


def _question(name: str, value: int, number: int, body: str) -> _Question:
    line = "static inline unsigned long question_{}_{}(void) {{ {} }}".format(name, number, body)
    return _Question(name, value, line)


def _tracepoint_arguments(name: str, root: str) -> Optional[int]:
    """How many arguments TP_PROTO of a tracepoint has, from the headers of the trace events."""
    if not re.fullmatch(r"\w+", name):
        return None
    pattern = re.compile(_EVENT.format(name))
    for path in sorted(glob.glob(os.path.join(root, "include/trace/events/*.h"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            match = pattern.search(file.read())
        if match:
            return match.group(1).count(",") + 1
    return None
