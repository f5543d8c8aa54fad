"""The facts of the host: of a made-up hypervisor below a folder, of a real OVSDB server, and of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole_collector.names.fact_keys import key, parts
from netconsole_collector.primitives.here import Here
from netconsole_collector.questions import facts
from netconsole_collector.questions.facts import cpu, kernel, memory, namespaces, ovs, reading, vms
from netconsole_collector.questions.facts.reading import Fact, Facts, grouped, ranges
from netconsole_collector.sources.vm import qemu

LIMIT_S = 60
QEMU = (
    "/usr/bin/qemu-system-x86_64\0-name\0guest=web/07,debug-threads=on\0-machine\0pc-q35-7.2,accel=kvm\0-cpu\0host\0"
    "-netdev\0" + '{"type":"tap","fds":"30:31","vhost":true,"id":"hostnet0"}\0'
    "-device\0" + '{"driver":"virtio-net-pci","netdev":"hostnet0","mac":"52:54:00:00:00:07","mq":true}\0'
    "-object\0secret,id=masterKey0,format=raw,file=/key\0-object\0iothread,id=io1\0"
)
STAT = "{tid} ({comm}) S " + " ".join(["0"] * 15 + ["-5"] + ["0"] * 20 + ["50", "1"]) + " 0 0\n"


def write(root: Path, path: str, text: str) -> None:
    """A file below the made-up root."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def thread(root: Path, where: str, tid: int, comm: str, cpus: str) -> None:
    """A thread as /proc shows it: fifo, priority 50, nice -5."""
    write(root, f"{where}/comm", comm + "\n")
    write(root, f"{where}/stat", STAT.format(tid=tid, comm=comm))
    write(root, f"{where}/status", f"Name:\t{comm}\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0-1\n")


@pytest.fixture
def hypervisor(tmp_path: Path) -> Path:
    """One VM of two queues with a vhost worker as a kernel thread, and a process that is none."""
    write(tmp_path, "proc/700/cmdline", QEMU)
    thread(tmp_path, "proc/700", 700, "qemu-system-x86", "0-3")
    thread(tmp_path, "proc/700/task/700", 700, "qemu-system-x86", "0-3")
    thread(tmp_path, "proc/700/task/701", 701, "CPU 0/KVM", "2")
    thread(tmp_path, "proc/700/task/702", 702, "CPU 1/KVM", "3")
    thread(tmp_path, "proc/710", 710, "vhost-700", "4-5")
    write(tmp_path, "proc/800/cmdline", "/bin/sh\0-c\0qemu-system-x86_64")
    (tmp_path / "proc/700/fd").mkdir()
    for fd, target in ((4, "/dev/null"), (30, "/dev/net/tun"), (31, "/dev/net/tun")):
        (tmp_path / f"proc/700/fd/{fd}").symlink_to(target)
        write(tmp_path, f"proc/700/fdinfo/{fd}", "pos:\t0\niff:\tvnet3\n")
    return tmp_path


def test_a_vm_is_described_under_its_name(hypervisor: Path) -> None:
    found = Facts(Here(hypervisor))
    vms.collect(found)
    taken = found.taken()
    values = {name.removeprefix("vm/web%2F07/"): fact.value for name, fact in taken.items()}
    assert values["vcpu/1/cpus"] == "3"
    assert values["vcpu/0/scheduling"] == "fifo priority 50"
    assert values["vhost/0/cpus"] == "4-5"
    assert values["net/0/tap"] == "vnet3"
    assert values["net/0/queues"] == 2
    assert values["net/0/model"] == "virtio-net-pci"
    assert values["net/0/vhost"] == "on"
    assert values["option/machine"] == "pc-q35-7.2,accel=kvm"
    assert values["option/object"] == "iothread,id=io1", "a secret is not a fact"
    assert values["qemu_version"] is None
    assert values["vm_count"] == 1
    volatile = {name for name, fact in taken.items() if fact.volatile}
    assert {
        key("vm", "web/07", "pid"),
        key("vm", "web/07", "net", 0, "tap"),
        key("vm", "web/07", "net", 0, "mac"),
    } <= volatile
    assert key("vm", "web/07", "vhost", 0, "cpus") not in volatile


def test_vhost_workers_inside_qemu_are_found_too(hypervisor: Path) -> None:
    shutil.rmtree(hypervisor / "proc/710")
    thread(hypervisor, "proc/700/task/711", 711, "vhost-700", "6")
    found = Facts(Here(hypervisor))
    vms.collect(found)
    assert found.taken()[key("vm", "web/07", "vhost", 0, "cpus")].value == "6"


def test_network_namespaces_are_named_or_known_by_their_first_process(tmp_path: Path) -> None:
    for pid, name, namespace in ((1, "init", "host"), (40, "pause", "a"), (41, "nginx", "a"), (50, "router", "b")):
        write(tmp_path, f"proc/{pid}/comm", f"{name}\n")
        write(tmp_path, f"namespaces/{namespace}", "")
        (tmp_path / f"proc/{pid}/ns").mkdir()
        (tmp_path / f"proc/{pid}/ns/net").symlink_to(tmp_path / f"namespaces/{namespace}")
    (tmp_path / "run/netns").mkdir(parents=True)
    (tmp_path / "run/netns/blue").symlink_to(tmp_path / "namespaces/b")
    (tmp_path / "run/netns/gone").symlink_to(tmp_path / "namespaces/none")
    found = Facts(Here(tmp_path))
    namespaces.collect(found)
    inodes = {name: (tmp_path / f"namespaces/{name}").stat().st_ino for name in "ab"}
    assert {name: fact.value for name, fact in found.taken().items()} == {
        f"netns/{inodes['a']}/process": "pause",
        f"netns/{inodes['b']}/name": "blue",
        "netns_count": 2,
    }
    assert all(fact.volatile for fact in found.taken().values())


def test_the_qemu_version_is_read_from_the_last_start_in_libvirts_log(hypervisor: Path) -> None:
    write(hypervisor, "proc/700/cmdline", QEMU.replace("web/07", "web-07"))
    write(
        hypervisor, "var/log/libvirt/qemu/web-07.log", "qemu version: 6.0.0, x\n" * 3 + "qemu version: 7.2.9Debian, y\n"
    )
    found = Facts(Here(hypervisor))
    vms.collect(found)
    assert found.taken()["vm/web-07/qemu_version"].value == "7.2.9Debian"


@given(st.lists(st.text()))
def test_any_command_line_is_survived(arguments: list[str]) -> None:
    qemu.parse(arguments)
    for option in ("-name", "-netdev", "-nic", "-net", "-device", "-object"):
        qemu.parse([word for argument in arguments for word in (option, argument)])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-nic", "tap,ifname=tap1,model=virtio-net-pci,mac=52:54:00:00:00:01"], [("tap1", "virtio-net-pci")]),
        (["-net", "nic,model=e1000,macaddr=52:54:00:00:00:02", "-net", "tap,ifname=tap2"], [("tap2", "e1000")]),
        (["-net", "tap,ifname=tap2", "-net", "nic"], [("tap2", None)]),
        (["-net", "tap,ifname=tap2"], [("tap2", None)]),
        (["-netdev", "tap,id=n,ifname=tap3", "-net", "nic,netdev=n,model=rtl8139"], [("tap3", "rtl8139")]),
        (["-nic", "none"], []),
        (["-net", "none"], []),
        (["-nic", "user", "-nic", "tap,ifname=tap4"], [(None, None), ("tap4", None)]),
        (["-netdev", "tap,id=n,ifname=a", "-device", "x,netdev=n", "-nic", "tap,ifname=b"], [("a", "x"), ("b", None)]),
    ],
)
def test_every_way_to_give_a_guest_a_tap_is_read(
    words: list[str], expected: list[tuple[str | None, str | None]]
) -> None:
    nics = qemu.parse(["qemu-system-x86_64", *words]).nics
    assert [(nic.backend.get("ifname"), nic.device.get("driver")) for nic in nics] == expected
    macs = [nic.device["mac"] for nic in nics if "mac" in nic.device]
    assert macs == [word.rpartition("=")[2] for word in words if "52:54" in word]


@pytest.mark.parametrize(
    ("comm", "options", "facts_of_it", "why"),
    [
        ("CPU 0/TCG", "guest=a,debug-threads=on", "vm/a/vcpu/0/cpus", None),
        ("ALL CPUs/TCG", "guest=a,debug-threads=on", "vm/a/vcpu/all/cpus", None),
        ("qemu-system-x86", "guest=a", "vm/a/vcpu", "no thread is named as a vCPU: QEMU runs without debug-threads=on"),
        ("qemu-system-x86", "guest=a,debug-threads=on", "vm/a/vcpu", "no thread is named as a vCPU"),
    ],
)
def test_the_virtual_cpus_of_an_emulated_machine_are_found(
    tmp_path: Path, comm: str, options: str, facts_of_it: str, why: str | None
) -> None:
    write(tmp_path, "proc/700/cmdline", f"qemu-system-x86_64\0-name\0{options}\0")
    thread(tmp_path, "proc/700/task/701", 701, comm, "2")
    found = Facts(Here(tmp_path))
    vms.collect(found)
    fact = found.taken()[facts_of_it]
    assert (fact.value, fact.why) == (None if why else "2", why)


@given(st.lists(st.text(), min_size=1))
def test_keys_come_apart_as_they_were_joined(names: list[str]) -> None:
    assert parts(key(*names)) == names


def test_many_cpus_make_one_value() -> None:
    assert grouped([(0, "performance"), (1, "performance")]) == "performance"
    assert grouped([(0, "a"), (1, "b"), (2, "a"), (3, "a")]) == "a: 0,2-3; b: 1"
    assert ranges([]) == ""


def test_this_machine_has_facts_with_sources_and_reasons() -> None:
    found = facts.collect(Facts())
    assert found["kernel/release"].value == os.uname().release
    assert found["nic/lo/mtu"].source == "rtnetlink (RTM_GETLINK)"
    assert any(name.startswith("nic/lo/offload/") for name in found)
    assert any(name.startswith("sysctl/net.core.") for name in found)
    for name, fact in found.items():
        assert fact.source, name
        assert (fact.value is None) == (fact.why is not None), name


def test_facts_that_do_not_fit_into_an_answer_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"a/{number}": Fact("x" * 100, "test") for number in range(5)}
    monkeypatch.setattr(facts, "collect", lambda _: many)
    monkeypatch.setattr(facts, "MAX_ANSWER_BYTES", 300)
    told = facts.answer({})["facts"]
    assert [*told] == ["a/0", "a/1", "omitted"] and told["omitted"].value == 3


def test_a_file_that_never_answers_costs_no_more_than_the_timeout(hypervisor: Path) -> None:
    (hypervisor / "proc/sys/kernel").mkdir(parents=True)
    os.mkfifo(hypervisor / "proc/sys/kernel/osrelease")  # nobody ever writes: opening it waits for ever
    found = facts.collect(Facts(Here(hypervisor)), timeout_s=0.2)
    assert found["kernel"].why == "not read within 0.2 s"
    assert found["ovs"].value is None
    # Let the thread that was left behind go.
    os.close(os.open(hypervisor / "proc/sys/kernel/osrelease", os.O_RDWR | os.O_NONBLOCK))


def test_settings_of_single_devices_and_keys_are_left_out(tmp_path: Path) -> None:
    for name in ("all", "default", "vnet3"):
        write(tmp_path, f"proc/sys/net/ipv4/conf/{name}/rp_filter", "1\n")
    write(tmp_path, "proc/sys/net/core/rmem_max", "212992\n")
    write(tmp_path, "proc/sys/net/netfilter/nf_conntrack_count", "5\n")
    write(
        tmp_path, "proc/sys/net/ipv4/tcp_fastopen_key", "8f3a1c02-5b7d9e10-22c4f6a8-0d1e2f30\n"
    )  # root alone reads it
    write(tmp_path, "proc/sys/net/core/netdev_rss_key", "6d:5a:56:da\n")
    found = Facts(Here(tmp_path))
    kernel.sysctls(found)
    assert list(found.taken()) == [
        "sysctl/net.core.rmem_max",
        "sysctl/net.ipv4.conf.all.rp_filter",
        "sysctl/net.ipv4.conf.default.rp_filter",
    ]


def test_the_number_of_facts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_FACTS", 2)
    found = Facts()
    for number in range(5):
        found.put(f"a/{number}", "x" * 9000, "test")
    assert (len(found.taken()), found.omitted) == (2, 3)
    assert len(str(found.taken()["a/0"].value)) == reading.MAX_TEXT


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """A real ovsdb-server with one bridge and a bonded port, answering on a socket of its own."""
    schema = Path("/usr/share/openvswitch/vswitch.ovsschema")
    if shutil.which("ovsdb-server") is None or not schema.exists():
        pytest.skip("no ovsdb-server")
    file, address = tmp_path / "conf.db", tmp_path / "run/openvswitch/db.sock"
    address.parent.mkdir(parents=True)
    subprocess.run(["ovsdb-tool", "create", str(file), str(schema)], check=True)
    pidfile = tmp_path / "pid"
    server = ["ovsdb-server", str(file), f"--remote=punix:{address}", "--detach", f"--pidfile={pidfile}", "--no-chdir"]
    subprocess.run([*server, f"--unixctl={tmp_path}/ctl"], check=True)
    pid = int(pidfile.read_text())
    try:
        command = ["ovs-vsctl", f"--db=unix:{address}", "--no-wait", "set", "Open_vSwitch", ".", "ovs_version=3.1.0"]
        command += ["other_config:max-idle=5000", "--", "add-br", "br0", "--", "set", "Bridge", "br0"]
        command += [
            "datapath_type=netdev",
            "--",
            "add-port",
            "br0",
            "vnet3",
            "tag=7",
            "--",
            "set",
            "Interface",
            "vnet3",
        ]
        command += ["options:n_rxq=4"]
        subprocess.run(command, check=True)
        yield tmp_path
    finally:
        os.kill(pid, 15)


def test_open_vswitch_is_read_from_its_database(database: Path) -> None:
    found = Facts(Here(database))
    ovs.collect(found)
    values = {name: fact.value for name, fact in found.taken().items()}
    assert values["ovs/ovs_version"] == "3.1.0"
    assert values["ovs/other_config/max-idle"] == "5000"
    assert values["ovs/bridge/br0/datapath_type"] == "netdev"
    assert values["ovs/port/vnet3/bridge"] == "br0"
    assert values["ovs/port/vnet3/tag"] == 7
    assert values["ovs/interface/vnet3/options/n_rxq"] == "4"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "no answer within 200 ms"),
        (b"", "closed the connection or sent no JSON-RPC"),
        (b"\x00garbage", "closed the connection or sent no JSON-RPC"),
        (b'{"method":"update","params":[]}', "closed the connection or sent no JSON-RPC"),
        (b'{"id":"#","result":[{"error":"nope"}],"error":null}', "answer does not fit the question"),
        (b'{"id":"netconsole","result":[{"error":"nope"}],"error":null}', "the database refused: nope"),
        (b'{"id":"netconsole","result":null,"error":"unknown database"}', "the database refused the request"),
        (b'{"id":"netconsole","result":[{"rows":[]}],"error":"syntax error"}', "the database refused the request"),
    ],
)
def test_a_database_that_misbehaves_is_left_alone_in_time(tmp_path: Path, answer: bytes | None, why: str) -> None:
    address = tmp_path / "db.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(1)
        asked = threading.Event()

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                if answer is not None:
                    client.sendall(answer)
                    if answer.startswith(b"{"):
                        asked.wait(LIMIT_S)
                else:
                    asked.wait(LIMIT_S)

        server = threading.Thread(target=serve)
        server.start()
        started = time.monotonic()
        with pytest.raises(ovs.OvsError, match=why):
            ovs.select(str(address), timeout_ms=200 if "200 ms" in why else LIMIT_S * 1000)
        assert time.monotonic() - started < LIMIT_S
        asked.set()
        server.join()


CPU, NODE = "sys/devices/system/cpu", "sys/devices/system/node"


def facts_of(root: Path, area: Callable[[Facts], None]) -> dict[str, object]:
    """What one area collects of a made-up host, by key; what is not known is left out."""
    found = Facts(Here(root))
    area(found)
    return {name: fact.value for name, fact in found.taken().items() if fact.value is not None}


def test_each_fact_of_the_cpus_is_its_own(tmp_path: Path) -> None:
    write(
        tmp_path, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Model A\nmicrocode\t: 0x1\n\nmodel name\t: Model B\n"
    )
    write(tmp_path, "proc/stat", "cpu  100 0 0 900 0 0 0 0 0 0\n")
    for number in (0, 1, 10):
        where = f"{CPU}/cpu{number}"
        files = {
            "scaling_governor": "performance" if number else "powersave",
            "scaling_driver": "d",
            "scaling_min_freq": "800",
            "scaling_max_freq": "3000",
            "energy_performance_preference": "power",
        }
        for file, value in files.items():
            write(tmp_path, f"{where}/cpufreq/{file}", value + "\n")
        for state, (name, latency) in {"state0": ("POLL", 0), "state1": ("C1", 2)}.items():
            write(tmp_path, f"{where}/cpuidle/{state}/name", name)
            write(tmp_path, f"{where}/cpuidle/{state}/latency", str(latency))
            write(tmp_path, f"{where}/cpuidle/{state}/disable", str(int(state == "state1" and number == 10)))
    for file, value in {
        "online": "0-1,10",
        "isolated": "10",
        "smt/control": "off",
        "cpuidle/current_driver": "acpi",
        "cpuidle/current_governor_ro": "menu",
        "intel_pstate/no_turbo": "1",
        "cpufreq/boost": "0",
        "vulnerabilities/meltdown": "Not affected",
    }.items():
        write(tmp_path, f"{CPU}/{file}", value + "\n")
    write(tmp_path, f"{NODE}/node0/cpulist", "0-1\n")
    write(tmp_path, f"{NODE}/node0/distance", "10 21\n")
    found = facts_of(tmp_path, cpu.collect)
    expected = {
        "cpu/model": "Model A", "cpu/microcode": "0x1", "cpu/online": "0-1,10", "cpu/isolated": "10",
        "cpu/smt_control": "off", "mitigation/meltdown": "Not affected",
        "cpu/governor": "performance: 1,10; powersave: 0",
        "cpu/frequency_driver": "d", "cpu/frequency_min_khz": "800", "cpu/frequency_max_khz": "3000",
        "cpu/energy_preference": "power", "cpu/boost": "0", "cpu/no_turbo": "1", "cpu/idle/driver": "acpi",
        "cpu/idle/governor": "menu", "cpu/idle/state0/name": "POLL", "cpu/idle/state1/name": "C1",
        "cpu/idle/state0/exit_latency_us": 0, "cpu/idle/state1/exit_latency_us": 2, "cpu/idle/state0/disabled": "0",
        "cpu/idle/state1/disabled": "0: 0-1; 1: 10", "numa/node0/cpus": "0-1", "numa/node0/distance": "10 21",
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected


def sleepers(tmp_path: Path, limit_us: int, own: dict[int, str], disabled: dict[int, str]) -> dict[str, object]:
    """Facts of four CPUs with three idle states. ``own``: limits of CPUs; ``disabled``: states of CPUs."""
    write(tmp_path, "proc/uptime", "100.00 300.00\n")
    (tmp_path / "dev").mkdir(exist_ok=True)
    (tmp_path / "dev/cpu_dma_latency").write_bytes(struct.pack("=i", limit_us))
    write(tmp_path, "sys/module/intel_idle/parameters/max_cstate", "9\n")
    for number in range(4):
        write(tmp_path, f"{CPU}/cpu{number}/power/pm_qos_resume_latency_us", own.get(number, "0") + "\n")
        for state, (name, latency) in enumerate((("POLL", 0), ("C1", 2), ("C6", 133))):
            values = {"name": name, "latency": latency, "time": state * number * 10_000_000, "usage": 1}
            values["disable"] = int(disabled.get(number) == name)
            for file, value in values.items():
                write(tmp_path, f"{CPU}/cpu{number}/cpuidle/state{state}/{file}", f"{value}\n")
    return {name: value for name, value in facts_of(tmp_path, cpu.collect).items() if name.startswith("cpu/idle/")}


def test_how_deep_each_cpu_may_sleep_and_slept(tmp_path: Path) -> None:
    """By the limit that a program asks for, by limits of single CPUs, and by states that are disabled."""
    found = sleepers(tmp_path, 2_000_000_000, {1: "20", 2: "n/a"}, {3: "C6"})
    assert found["cpu/idle/latency_limit_us"] == "none" and found["cpu/idle/intel_idle_max_cstate"] == 9
    assert found["cpu/idle/own_latency_limit_us"] == "0: 2; 20: 1; none: 0,3"
    assert found["cpu/idle/deepest"] == "C1 (2 us): 1,3; C6 (133 us): 0; POLL (0 us): 2"
    assert [found[f"cpu/idle/state{state}/used_pct"] for state in range(3)] == [0, 15.0, 30.0]
    found = sleepers(tmp_path, 20, {}, {})
    assert (found["cpu/idle/latency_limit_us"], found["cpu/idle/deepest"]) == (20, "C1 (2 us)")


def test_the_cpus_of_a_core_are_known_where_it_has_several(tmp_path: Path) -> None:
    for number, siblings in enumerate(("0,2", "1,10", "0,2", "3")):
        write(tmp_path, f"{CPU}/cpu{number}/topology/thread_siblings_list", siblings + "\n")
    (tmp_path / CPU / "cpu9").mkdir()  # it is offline
    assert facts_of(tmp_path, cpu.collect)["cpu/cores"] == ["0,2", "1,10"]


def test_each_fact_of_memory_is_its_own(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal:       1000 kB\nMemFree:        7 kB\n")
    huge = "sys/kernel/mm/hugepages/hugepages-2048kB"
    for file, value in {"nr_hugepages": 10, "nr_overcommit_hugepages": 20, "free_hugepages": 3}.items():
        write(tmp_path, f"{huge}/{file}", f"{value}\n")
    write(tmp_path, f"{NODE}/node1/meminfo", "Node 1 MemTotal:       400 kB\n")
    write(tmp_path, f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages", "4\n")
    write(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    write(tmp_path, "sys/kernel/mm/transparent_hugepage/defrag", "[never]\n")
    write(tmp_path, "sys/kernel/mm/ksm/run", "1\n")
    write(tmp_path, "proc/sys/kernel/numa_balancing", "2\n")
    settings = {"swappiness": 60, "zone_reclaim_mode": 0, "overcommit_memory": 1, "min_free_kbytes": 67584}
    for name, value in settings.items():
        write(tmp_path, f"proc/sys/vm/{name}", f"{value}\n")
    assert facts_of(tmp_path, memory.collect) == {
        "memory/total_kb": 1000, "memory/hugepages-2048kB/pages": 10, "memory/hugepages-2048kB/overcommit": 20,
        "memory/hugepages-2048kB/free": 3, "memory/node1/total_kb": 400, "memory/node1/hugepages-2048kB/pages": 4,
        "memory/transparent_hugepage_enabled": "madvise", "memory/transparent_hugepage_defrag": "never",
        "memory/ksm_run": 1, "memory/numa_balancing": 2, **{f"memory/{name}": one for name, one in settings.items()},
    }  # fmt: skip


def test_what_a_host_does_not_tell_of_its_cpus_is_said(tmp_path: Path) -> None:
    """And what changes by itself is volatile."""
    found = Facts(Here(tmp_path))
    cpu.collect(found)
    memory.collect(found)
    why = {name: fact.why for name, fact in found.taken().items() if fact.value is None}
    assert why["cpu/model"] == "No such file or directory"
    assert why["cpu/governor"] == "this machine has no frequency scaling (a guest, or the firmware does it)"
    assert why["cpu/idle/states"] == "the kernel shows no idle states" and "cpu/online" in why
    assert {"cpu/isolated", "memory/ksm_run", "memory/swappiness", "cpu/boost"}.isdisjoint(found.taken())
    write(tmp_path, "proc/cpuinfo", "processor : 0\n")
    write(tmp_path, "proc/meminfo", "MemFree: 7 kB\n")
    write(tmp_path, "sys/kernel/mm/hugepages/h/free_hugepages", "3\n")
    write(tmp_path, f"{NODE}/node1/meminfo", "Node 1 MemTotal:       400 kB\n")
    found = Facts(Here(tmp_path))
    cpu.collect(found)
    memory.collect(found)
    assert found.taken()["cpu/model"].why == "/proc/cpuinfo names no model on this architecture"
    assert found.taken()["memory/total_kb"].why == "the value is not in the expected form"
    write(tmp_path, "proc/meminfo", "MemTotal: 7 kB\n")
    found = Facts(Here(tmp_path))
    memory.collect(found)
    volatile = {name for name, fact in found.taken().items() if fact.volatile}
    assert (
        volatile >= {"memory/total_kb", "memory/h/free", "memory/node1/total_kb"} and "memory/h/pages" not in volatile
    )


def test_a_descriptor_of_vhost_says_that_vhost_moves_the_packets(tmp_path: Path) -> None:
    words = ["qemu-kvm", "-name", "guest=web", "-netdev", "tap,id=n1,ifname=tap0,vhostfd=31"]
    write(tmp_path, "proc/700/cmdline", "".join(f"{word}\0" for word in words))
    found = Facts(Here(tmp_path))
    vms.collect(found)
    assert found.taken()["vm/web/net/0/vhost"].value == "on"


def test_the_socket_of_a_vhost_user_device_leads_to_the_port_of_the_switch(tmp_path: Path) -> None:
    words = ["qemu-kvm", "-name", "guest=web", "-chardev", "socket,id=c1,path=/run/vhost-web,server=on"]
    words += ["-netdev", "vhost-user,id=n1,chardev=c1", "-device", "virtio-net-pci,netdev=n1"]
    write(tmp_path, "proc/700/cmdline", "".join(f"{word}\0" for word in words))
    found = Facts(Here(tmp_path))
    vms.collect(found)
    assert found.taken()["vm/web/net/0/socket"].value == "/run/vhost-web"
