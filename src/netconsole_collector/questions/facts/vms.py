"""Facts of the virtual machines: vCPU placement, vhost workers, network devices with their taps, QEMU's options.

All facts are under the VM's name. What changes with every start (process and tap numbers, MACs) is volatile; a
comparison matches volatile labels with it. QEMU itself is not asked. ``numa_maps`` is not read, because that walks all
of the guest's memory. So the real NUMA placement of the memory is not known.
"""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Set

from netconsole_collector.names.fact_keys import key, parts
from netconsole_collector.questions.facts import vm_disks
from netconsole_collector.questions.facts.reading import Facts, decoded, reason
from netconsole_collector.questions.facts.waiting import cpu_max, waited_pct
from netconsole_collector.sources.net import windows
from netconsole_collector.sources.net.netlink_messages import NETLINK_SOCK_DIAG
from netconsole_collector.sources.vm import qemu

_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline"}
_STAT_NICE, _STAT_RT_PRIORITY, _STAT_POLICY = 19 - 3, 40 - 3, 41 - 3
"""Fields of /proc/PID/stat by their numbers in proc(5), counted from the third (after the process name)."""
_MAX_VMS = 2048
_VCPU = re.compile(r"(?:CPU (\d+)/(?:KVM|TCG)|ALL CPUs/TCG)$")
"""As accel/*-accel-ops.c of QEMU name the threads of virtual CPUs; without KVM one thread may run all."""
_ALL_VCPUS = "all"
_DEVICE_FIELDS = {
    "driver": "model",
    "mac": "mac",
    "mq": "multiqueue",
    **{
        name: name
        for name in ("vectors", "rx_queue_size", "tx_queue_size", "packed", "mrg_rxbuf", "csum", "gso", "host_mtu")
    },
}
_BACKEND_FIELDS = {
    "type": "backend",
    "vhost": "vhost",
    "sndbuf": "sndbuf",
    "poll-us": "poll_us",
    "queues": "queues_wanted",
}
_LOG_TAIL_BYTES = 256 * 1024


class Thread(NamedTuple):
    """A thread and how it is scheduled."""

    tid: int
    comm: str
    cpus: str
    scheduling: str
    waited_pct: Optional[float]


def collect(facts: Facts) -> None:
    """Add the facts under ``vm/``. A VM without a name is called by its UUID, or "unnamed"."""
    found = 0
    pids = [entry for entry in facts.entries("/proc") if entry.isdigit()]
    workers = _kernel_workers(facts, pids)
    used: Set[str] = set()
    machines = list(_qemu_processes(facts, pids))
    for pid in machines:
        found += 1
        if found > _MAX_VMS:
            facts.unknown("vm", "/proc", f"only the first {_MAX_VMS} VMs are listed")
            return
        arguments = _arguments(facts, pid)
        line = qemu.parse(arguments)
        name = line.name or line.uuid or "unnamed"
        if name in used:  # by process id, which is mostly the order of starting
            name = f"{name} #{sum(one.partition(' #')[0] == name for one in used) + 1}"
        used.add(name)
        _vm(facts, pid, name, line, workers.get(pid, []))
        vm_disks.collect(facts, pid, name, arguments)
    facts.put("vm_count", found, "/proc/*/cmdline", volatile=True)
    _senders(facts)


def _senders(facts: Facts) -> None:
    """What of this host's TCP connections to VMs a window holds back; a VM is known by the MAC of its address."""
    macs = {}
    for name, fact in facts.taken().items():
        part = parts(name)
        if part[0] == "vm" and part[2:3] == ["net"] and part[-1] == "mac":
            macs[str(fact.value).lower()] = part[1]
    try:
        lines = [line.split() for line in facts.text("/proc/net/arp").splitlines()[1:]] if macs else []
        machines = {line[0]: macs[line[3]] for line in lines if len(line) > 3 and line[3] in macs}
        if not machines:
            return
        netlink = facts.host.netlink(NETLINK_SOCK_DIAG)
        try:
            found = windows.senders(netlink, machines)
        finally:
            netlink.close()
    except OSError:
        return  # this kernel lists no sockets by netlink
    for one in found:
        where = ("vm", machines[one.peer], "tcp", "{}:{} from {}".format(one.peer, one.peer_port, one.port))
        for prop in ("receiver_window_pct", "send_buffer_pct", "rtt_us"):
            facts.put(key(*where, prop), getattr(one, prop), "INET_DIAG_INFO", volatile=True)


def _vm(facts: Facts, pid: int, name: str, line: qemu.CommandLine, workers: List[Thread]) -> None:
    facts.put(key("vm", name, "pid"), pid, "/proc", volatile=True)
    for option, values in line.options.items():
        facts.put(key("vm", name, "option", option), " ; ".join(values), f"/proc/{pid}/cmdline")
    _version(facts, name)
    limit = cpu_max(facts, pid)
    if limit is not None:
        facts.put(key("vm", name, "cpu_max"), limit, "control groups: cpu.max")
    for field, fact in (("Mems_allowed_list", "memory_nodes_allowed"), ("Cpus_allowed_list", "emulator_cpus")):
        text = _status(facts, f"/proc/{pid}").get(field)
        if text is not None:
            facts.put(key("vm", name, fact), text, f"/proc/{pid}/status")
    vcpus = 0
    for tid in facts.entries(f"/proc/{pid}/task"):
        thread = _thread(facts, f"/proc/{pid}/task/{tid}", int(tid)) if tid.isdigit() else None
        if thread is None:
            continue
        vcpu = _VCPU.match(thread.comm)
        if vcpu:
            vcpus += 1
            number = vcpu[1] or _ALL_VCPUS
            facts.put(key("vm", name, "vcpu", number, "cpus"), thread.cpus, f"/proc/{pid}/task/*/status")
            facts.put(key("vm", name, "vcpu", number, "scheduling"), thread.scheduling, f"/proc/{pid}/task/*/stat")
            facts.put(key("vm", name, "vcpu", number, "tid"), thread.tid, f"/proc/{pid}/task", volatile=True)
            _waited(facts, key("vm", name, "vcpu", number, "waited_pct"), thread, f"/proc/{pid}/task/*/schedstat")
        elif thread.comm.startswith("vhost-"):
            workers.append(thread)  # from 6.4 on a worker is a thread of QEMU
    if not vcpus:
        why = "no thread is named as a vCPU" + ("" if line.names_threads else ": QEMU runs without debug-threads=on")
        facts.unknown(key("vm", name, "vcpu"), f"/proc/{pid}/task/*/comm", why)
    for place, worker in enumerate(sorted(workers, key=lambda thread: thread.tid)):
        facts.put(key("vm", name, "vhost", place, "cpus"), worker.cpus, "/proc/*/status")
        facts.put(key("vm", name, "vhost", place, "scheduling"), worker.scheduling, "/proc/*/stat")
        facts.put(key("vm", name, "vhost", place, "tid"), worker.tid, "/proc", volatile=True)
        _waited(facts, key("vm", name, "vhost", place, "waited_pct"), worker, "/proc/*/schedstat")
    _nics(facts, pid, name, line)


def _waited(facts: Facts, name: str, thread: Thread, source: str) -> None:
    if thread.waited_pct is not None:
        facts.put(name, thread.waited_pct, source, volatile=True)


def _nics(facts: Facts, pid: int, name: str, line: qemu.CommandLine) -> None:
    taps = _taps(facts, pid)
    unnamed = dict.fromkeys(taps.values())  # in the order of their descriptors
    for number, nic in enumerate(line.nics):
        tap = nic.backend.get("ifname") or next((taps[fd] for fd in nic.descriptors if fd in taps), None)
        where = f"/proc/{pid}/cmdline"
        if tap is None and len(line.nics) == len(unnamed):
            tap = list(unnamed)[number]
        socket = line.sockets.get(nic.backend.get("chardev", ""))
        if socket is not None:
            facts.put(key("vm", name, "net", number, "socket"), socket, where, volatile=True)
        if tap is not None:
            facts.put(key("vm", name, "net", number, "tap"), tap, f"/proc/{pid}/fdinfo", volatile=True)
            facts.put(key("vm", name, "net", number, "queues"), list(taps.values()).count(tap), f"/proc/{pid}/fdinfo")
        if "vhost" not in nic.backend and ("vhostfd" in nic.backend or "vhostfds" in nic.backend):
            facts.put(key("vm", name, "net", number, "vhost"), "on", where)  # net/tap.c of QEMU: its default then
        for source, fields in ((nic.backend, _BACKEND_FIELDS), (nic.device, _DEVICE_FIELDS)):
            for option, fact in fields.items():
                if option in source:
                    facts.put(key("vm", name, "net", number, fact), source[option], where, volatile=fact == "mac")


def _taps(facts: Facts, pid: int) -> Dict[int, str]:
    """Tap devices by descriptor, in the order of the descriptors: one per queue."""
    found = {}
    for fd in facts.entries(f"/proc/{pid}/fd"):
        if facts.link(f"/proc/{pid}/fd/{fd}") == "tun":
            try:
                device = re.search(r"^iff:\s*(\S+)", facts.text(f"/proc/{pid}/fdinfo/{fd}"), re.MULTILINE)
            except OSError:
                continue
            if device:
                found[int(fd)] = device[1]
    return found


def _qemu_processes(facts: Facts, pids: List[str]) -> Iterator[int]:
    for pid in pids:
        if qemu.is_qemu(_arguments(facts, int(pid))):
            yield int(pid)


def _kernel_workers(facts: Facts, pids: List[str]) -> Dict[int, List[Thread]]:
    """vhost workers before 6.4, by owner: kernel threads that are named after the process that owns them."""
    found: Dict[int, List[Thread]] = {}
    for entry in pids:
        try:
            owner = re.fullmatch(r"vhost-(\d+)", facts.text(f"/proc/{entry}/comm").strip())
        except OSError:
            continue
        thread = _thread(facts, f"/proc/{entry}", int(entry)) if owner else None
        if owner and thread is not None:
            found.setdefault(int(owner[1]), []).append(thread)
    return found


def _thread(facts: Facts, where: str, tid: int) -> Optional[Thread]:
    try:
        comm = facts.text(f"{where}/comm").rstrip("\n")
        if not (_VCPU.match(comm) or comm.startswith("vhost-")):
            return None
        fields = facts.text(f"{where}/stat").rsplit(")", 1)[1].split()
        policy = _POLICIES.get(int(fields[_STAT_POLICY]), f"policy {fields[_STAT_POLICY]}")
        nice, priority = int(fields[_STAT_NICE]), int(fields[_STAT_RT_PRIORITY])
    except (OSError, IndexError, ValueError):
        return None
    suffix = f" priority {priority}" if priority else f" nice {nice}" if nice else ""
    return Thread(
        tid, comm, _status(facts, where).get("Cpus_allowed_list", ""), policy + suffix, waited_pct(facts, where)
    )


def _status(facts: Facts, where: str) -> Dict[str, str]:
    try:
        lines = facts.text(f"{where}/status").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _arguments(facts: Facts, pid: int) -> List[str]:
    try:
        text = facts.text(f"/proc/{pid}/cmdline")
    except OSError:
        return []
    return text.rstrip("\0").split("\0") if text else []


def _version(facts: Facts, name: str) -> None:
    """Add QEMU's version. libvirt writes it into the VM's log at every start. Asking QEMU itself would disturb it."""
    source = f"/var/log/libvirt/qemu/{name}.log"
    fact = key("vm", name, "qemu_version")
    if "/" in name or name.startswith("."):
        facts.unknown(fact, "libvirt's log", "the VM's name cannot be a file name")
        return
    try:
        tail = facts.host.read(source, _LOG_TAIL_BYTES, True)
        versions = re.findall(r"qemu version: ([^\s,]+)", decoded(tail))
    except OSError as error:
        facts.unknown(fact, source, reason(error))
        return
    if versions:
        facts.put(fact, versions[-1], source)
    else:
        facts.unknown(fact, source, "the last 256 kB of the log have no start of this VM")
