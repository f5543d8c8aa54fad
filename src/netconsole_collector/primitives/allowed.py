"""What may be read at all, whoever asks: the files, sockets and netlink requests that sources and facts need.

Nothing here writes, and a request that would change something is refused.
"""

import errno
import os
import re
import socket
import struct
from typing import Dict, FrozenSet

_PROCESS = rb"/proc/(?:[0-9]+|self)"
_DEVICE = rb"/sys/class/net/[^/]+"
_FILES = re.compile(
    rb"(?:" + _PROCESS + rb"/(?:comm|cmdline|stat|status|ns/net|fdinfo/[0-9]+|task/[0-9]+/(?:comm|stat|status|syscall))"
    rb"|/proc/(?:cpuinfo|meminfo|stat|cmdline|net/softnet_stat|sys/.+|irq/[0-9]+/.+)"
    rb"|/sys/(?:module/.+|devices/system/.+|kernel/mm/.+|kernel/security/lockdown)"
    rb"|"
    + _DEVICE
    + rb"(?:/[a-z_]+|/bonding/[a-z_]+|/queues/[rt]x-[0-9]+/[rx]ps_cpus|/device(?:/\.\.)?/(?:numa_node|msi_irqs))"
    rb"|/etc/os-release|/usr/lib/os-release"
    rb"|/var/log/libvirt/qemu/[^/]+\.log"
    rb"|/run/netns/[^/]+"
    rb"|(?:/var)?(?:/usr/local/var)?/run/openvswitch/[^/]+"
    rb")",
    re.DOTALL,
)
_FOLDERS = re.compile(
    rb"/proc|" + _PROCESS + rb"/(?:fd|task)|/proc/sys/.+|/proc/irq/[0-9]+|/run/netns"
    rb"|/sys/(?:module/.+|devices/system/.+|kernel/mm/.+)|" + _DEVICE + rb"(?:/queues|/device(?:/\.\.)?/msi_irqs)",
    re.DOTALL,
)
_LINKS = re.compile(_PROCESS + rb"/fd/[0-9]+")
_NAMESPACES = re.compile(_PROCESS + rb"/ns/net|/run/netns/[^/]+", re.DOTALL)
_SOCKETS = re.compile(rb"(?:/var)?(?:/usr/local/var)?/run/openvswitch/[^/]+\.(?:ctl|sock)")
_REAL = (b"/proc/", b"/sys/")
_UNSAFE = re.compile(rb"(?:\.\./){2}|/\.\./.*/\.\./|\0")
"""One step up is needed: /sys/class/net/NAME/device/../msi_irqs."""

UNIXCTL = frozenset(
    (
        "upcall/show",
        "coverage/read-counter",
        "dpctl/show",
        "dpctl/dump-flows",
        "dpif/show",
        "fdb/show",
        "list-commands",
        "version",
    )
)
OVSDB = frozenset(("transact",))
_ROUTE_KINDS = frozenset((18, 22, 30, 38, 42, 46))
"""RTM_GETLINK, ADDR, NEIGH, QDISC, TCLASS and TFILTER (include/uapi/linux/rtnetlink.h)."""
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_GENERIC, _CTRL, _GET_FAMILY = 16, 16, 3
GETTERS: Dict[str, FrozenSet[int]] = {
    "ovs_datapath": frozenset((3,)),
    "ovs_vport": frozenset((3,)),
    "ethtool": frozenset((15,)),
}
"""Commands of generic netlink that only read: OVS_DP_CMD_GET, OVS_VPORT_CMD_GET, ETHTOOL_MSG_RINGS_GET."""


def file(path: bytes) -> bytes:
    """The same path, if its content or status may be read. Raises PermissionError."""
    return _checked(_FILES, path)


def link(path: bytes) -> bytes:
    """The same path, if it may be told where it leads. Raises PermissionError."""
    return _checked(_LINKS, path)


def folder(path: bytes) -> bytes:
    """The same path, if its entries may be listed. Raises PermissionError."""
    return _checked(_FOLDERS, path)


def namespace(path: bytes) -> bytes:
    """The same path, if it may be a network namespace. Raises PermissionError."""
    return _checked(_NAMESPACES, path)


def unix_socket(path: bytes) -> bytes:
    """The same path, if it may be asked. Raises PermissionError."""
    return _checked(_SOCKETS, os.path.realpath(_checked(_SOCKETS, path))) and path


def content(path: bytes) -> bytes:
    """The same path, if it may be read and no link leads elsewhere. Raises OSError.

    In /proc and /sys only the kernel makes links. Elsewhere a service may: its directory belongs to it.
    """
    file(path)
    if not path.startswith(_REAL):
        file(os.path.realpath(path))
    return path


def request(method: object, path: bytes) -> None:
    """Refuse a method of a control socket that does more than tell. Raises PermissionError."""
    if method not in (OVSDB if path.endswith(b".sock") else UNIXCTL):
        raise _refused(str(method))


def selects(operations: object) -> None:
    """Refuse a transaction of OVSDB that does more than select. Raises PermissionError."""
    of_it = operations[1:] if isinstance(operations, list) else [None]
    if not all(isinstance(one, dict) and one.get("op") == "select" for one in of_it):
        raise _refused("a transaction that changes something")


def netlink(protocol: int, kind: int, body: bytes, families: Dict[int, str]) -> None:
    """Refuse a request that does more than tell. Raises PermissionError.

    ``families``: of generic netlink, by number.
    """
    if protocol == socket.NETLINK_ROUTE and kind in _ROUTE_KINDS:
        return
    if protocol == _SOCK_DIAG and kind == _SOCK_DIAG_BY_FAMILY:
        return
    if protocol == _GENERIC and body:
        command = struct.unpack_from("=B", body)[0]
        if kind == _CTRL and command == _GET_FAMILY:
            return
        if command in GETTERS.get(families.get(kind, ""), ()):
            return
    raise _refused("netlink message {}".format(kind))


def _checked(pattern: "re.Pattern[bytes]", path: bytes) -> bytes:
    if pattern.fullmatch(path) and not _UNSAFE.search(path) and _stays(path):
        return path
    raise _refused(path.decode("utf-8", "backslashreplace")[:200])


def _stays(path: bytes) -> bool:
    return b"/.." not in path or path.startswith(b"/sys/class/net/")


def _refused(what: str) -> PermissionError:
    return PermissionError(errno.EPERM, "netconsole does not read {}".format(what))
