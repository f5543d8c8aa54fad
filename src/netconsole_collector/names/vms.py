"""The VM that a tap or a QEMU process belongs to: by QEMU's own command line and descriptors, without libvirt.

A descriptor that is a queue of a tap says so in /proc/PID/fdinfo ("iff:", drivers/net/tun.c). There is a scan when
somebody asks for an unknown tap. While a tap has no VM, scans become less and less frequent. There is one every minute
in any case: a tap may leave one VM and come to another while both run.
"""

import os
import re
import time
from typing import Dict, List, NamedTuple, Optional, Set

from netconsole_collector.names.descriptors import opened

_SCAN_EVERY_S = (2.0, 64.0)
"""First and longest pause. It doubles after each scan in vain: the tap of a VPN must not cost a scan every interval."""
_MAX_VMS = 4096
_MAX_QUEUES = 65536
_MAX_DEPTH = 12
OF_GROUP = 1 << 63
"""In place of a process: a control group, by its number (probes/disk/block_path/submitter.h)."""
_TUN_DEVICE = "/dev/net/tun"
_INTERFACE = re.compile(rb"^iff:\s*(.+)$", re.MULTILINE)
_START_TIME = 22 - 3
"""Field 22 of /proc/PID/stat in proc(5), counted from the field after the process name."""


class Vm(NamedTuple):
    """A running QEMU. ``started`` distinguishes it from a later process with the same pid."""

    name: str
    pid: int
    started: bytes
    netns: int


class Vms:
    """Answers from the last scan. When ``changes`` grows, a tap may belong to another VM than before."""

    def __init__(self, proc: str = "/proc", cgroup: str = "/sys/fs/cgroup") -> None:
        self.changes = 0
        self._proc = proc
        self._cgroup = cgroup
        self._vms: Dict[int, Vm] = {}
        self._taps: Dict[str, Set[Vm]] = {}
        self._groups: Dict[int, Set[Vm]] = {}
        """By control group: the VMs in it."""
        self._asked_in_vain = False
        self._next_scan = self._slow_scan = 0.0
        self._scan_every_s = _SCAN_EVERY_S[0]

    def of_tap(self, device: str, netns: int = 0) -> Optional[str]:
        """Name of the VM that has queues of this tap. None when there is none, or when several cannot be told apart.

        ``netns`` is the inode of the device's network namespace: two taps may have the same name.
        """
        if device not in self._taps:
            self._scan_if_due()
        owners = self._taps.get(device, set())
        self._asked_in_vain = self._asked_in_vain or not owners
        if len(owners) > 1:
            owners = {vm for vm in owners if vm.netns == netns}
        return next(iter(owners)).name if len(owners) == 1 else None

    def owners(self, devices: List[str]) -> List[Vm]:
        """The VMs that have queues of these taps, now."""
        self._scan()
        return sorted(set().union(*(self._taps.get(device, set()) for device in devices)))

    def of_process(self, pid: int) -> Optional[str]:
        """Name of the VM whose QEMU has this pid. None when the process is no QEMU.

        With OF_GROUP it is the number of a control group: that of the only VM in it.
        """
        if pid & OF_GROUP:
            owners = self._groups.get(pid & ~OF_GROUP, set())
            if not owners:
                self._scan_if_due()
                owners = self._groups.get(pid & ~OF_GROUP, set())
            return next(iter(owners)).name if len(owners) == 1 else None
        if pid not in self._vms:
            self._scan_if_due()
        vm = self._vms.get(pid)
        self._asked_in_vain = self._asked_in_vain or vm is None
        return vm.name if vm else None

    def taps(self) -> Dict[str, List[str]]:
        """The taps of every VM by its name, as of a scan now."""
        self._scan_if_due()
        found = {vm.name: [] for vm in self._vms.values()}  # type: Dict[str, List[str]]
        for tap, owners in sorted(self._taps.items()):
            for vm in owners:
                found.setdefault(vm.name, []).append(tap)
        return found

    def refresh(self) -> None:
        """Call this once in each interval. It notices VMs that have ended, and looks again for what was not found."""
        ended = [vm for vm in self._vms.values() if _started(self._path(vm.pid, "stat")) != vm.started]
        if ended:
            self.changes += 1
            self._next_scan, self._scan_every_s = 0.0, _SCAN_EVERY_S[0]
            for vm in ended:
                del self._vms[vm.pid]
                for owners in (*self._taps.values(), *self._groups.values()):
                    owners.discard(vm)
            self._taps = {device: owners for device, owners in self._taps.items() if owners}
        elif self._asked_in_vain or time.monotonic() >= self._slow_scan:
            self._scan_if_due()

    def _scan_if_due(self) -> None:
        now = time.monotonic()
        if now < self._next_scan:
            return
        before = self._vms, self._taps, self._groups
        self._scan()
        in_vain = self._asked_in_vain and (self._vms, self._taps, self._groups) == before
        self._scan_every_s = min(2 * self._scan_every_s, _SCAN_EVERY_S[1]) if in_vain else _SCAN_EVERY_S[0]
        if (self._vms, self._taps, self._groups) != before:
            self.changes += 1
            self._asked_in_vain = False  # readers that still want to know ask again
        self._next_scan, self._slow_scan = now + self._scan_every_s, now + _SCAN_EVERY_S[1]

    def _scan(self) -> None:
        vms: Dict[int, Vm] = {}
        taps: Dict[str, Set[Vm]] = {}
        groups: Dict[int, Set[Vm]] = {}
        queues = 0
        for entry in os.listdir(self._proc):
            if not entry.isdigit() or len(vms) >= _MAX_VMS or queues >= _MAX_QUEUES:
                continue
            vm = self._vms.get(int(entry)) or self._vm(int(entry))
            if vm is None:
                continue
            vms[vm.pid] = vm
            for group in self._groups_of(vm.pid):
                groups.setdefault(group, set()).add(vm)
            for device in self._taps_of(vm.pid):
                queues += 1
                taps.setdefault(device, set()).add(vm)
        self._vms, self._taps, self._groups = vms, taps, groups

    def _vm(self, pid: int) -> Optional[Vm]:
        arguments = _read(self._path(pid, "cmdline")).split(b"\0")
        if not is_qemu(arguments):
            return None
        started = _started(self._path(pid, "stat"))
        try:
            netns = os.stat(self._path(pid, "ns/net")).st_ino
        except OSError:
            netns = 0
        return Vm(name_of(arguments) or "qemu ({})".format(pid), pid, started, netns) if started else None

    def _taps_of(self, pid: int) -> List[str]:
        """The tap of each queue, so a tap may be there several times."""
        devices = []
        for number, target in opened(self._path(pid, "fd")):
            if target == _TUN_DEVICE:
                found = _INTERFACE.search(_read(self._path(pid, "fdinfo/" + number)))
                if found:
                    devices.append(found.group(1).decode("utf-8", "backslashreplace"))
        return devices

    def _groups_of(self, pid: int) -> Set[int]:
        """The numbers of its control groups that can be those of an I/O, but for the uppermost, which has everybody."""
        found: Set[int] = set()
        for line in _read(self._path(pid, "cgroup")).decode("utf-8", "backslashreplace").splitlines():
            _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
            steps = [step for step in path.split("/") if step][:_MAX_DEPTH]
            if (controllers and "blkio" not in controllers.split(",")) or ".." in steps:
                continue
            for depth in range(1, len(steps) + 1):
                try:
                    found.add(
                        os.stat("/".join([self._cgroup + ("/blkio" if controllers else "")] + steps[:depth])).st_ino
                    )
                except OSError:
                    continue
        return found

    def _path(self, pid: int, name: str) -> str:
        return os.path.join(self._proc, str(pid), name)


def is_qemu(arguments: List[bytes]) -> bool:
    """Whether this is the command line of a system emulator, under the names that distributions give it."""
    program = arguments[0].rsplit(b"/", 1)[-1]
    return program.startswith(b"qemu-system-") or program in (b"qemu-kvm", b"kvm", b"qemu-system")


def name_of(arguments: List[bytes]) -> Optional[str]:
    """What -name says (libvirt: -name guest=web-07,debug-threads=on), else the UUID, else None."""
    values: Dict[bytes, bytes] = {}
    for option, value in zip(arguments, arguments[1:]):
        if option.startswith(b"-"):
            values.setdefault(option.lstrip(b"-"), value)
    for part in _parts(values.get(b"name", b"").decode("utf-8", "backslashreplace")):
        key, equals, text = part.partition("=")
        if not equals or key == "guest":
            return text or key or None
    return values.get(b"uuid", b"").decode("utf-8", "backslashreplace") or None


def _parts(option: str) -> List[str]:
    """Parts between commas. A doubled comma belongs to the text (QEMU's util/keyval.c)."""
    return [part.replace("\0", ",") for part in option.replace(",,", "\0").split(",") if part]


def _started(path: str) -> bytes:
    """Start time in clock ticks, as text. Empty when the process is gone."""
    fields = _read(path).rpartition(b")")[2].split()
    return fields[_START_TIME] if len(fields) > _START_TIME else b""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 17)
    except OSError:
        return b""
