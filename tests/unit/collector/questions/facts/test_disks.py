"""The disks of a VM by QEMU's command line, where their files lie, and the tree of block devices below."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions.facts import blocks, vm_disks
from netconsole_collector.questions.facts.reading import Facts
from netconsole_collector.sources.vm.qemu_disks import VmDisk, disks

NONE = VmDisk(*[None] * len(VmDisk._fields))._replace(model="")  # type: ignore[arg-type]
LIBVIRT = [
    "qemu-system-x86_64",
    "-object",
    json.dumps({"qom-type": "throttle-group", "id": "slow", "limits": {"iops-total": 20, "bps-read": 0}}),
    "-blockdev",
    json.dumps({
        "driver": "file", "filename": "/var/lib/images/web.qcow2", "node-name": "libvirt-1-storage", "aio": "io_uring",
        "cache": {"direct": True, "no-flush": False}, "discard": "unmap",
    }),
    "-blockdev",
    json.dumps({"node-name": "libvirt-1-format", "driver": "qcow2", "read-only": False, "file": "libvirt-1-storage"}),
    "-blockdev",
    json.dumps({"node-name": "f", "driver": "throttle", "throttle-group": "slow", "file": "libvirt-1-format"}),
    "-device",
    json.dumps({"driver": "virtio-blk-pci", "drive": "f", "iothread": "io1", "num-queues": 4, "write-cache": "on"}),
]  # fmt: skip


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def values(facts: Facts) -> dict[str, object]:
    return {name: fact.value for name, fact in facts.taken().items()}


def test_a_disk_as_libvirt_writes_it() -> None:
    [disk] = disks(LIBVIRT)
    assert disk == NONE._replace(
        model="virtio-blk-pci", format="qcow2", protocol="file", file="/var/lib/images/web.qcow2", aio="io_uring",
        cache_direct="on", cache_no_flush="off", discard="unmap", read_only="off", write_cache="on", iothread="io1",
        queues="4", limits="iops-total=20",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "-drive file=/a,,b.img,if=virtio,format=raw,cache=none,aio=native",
            {"model": "virtio", "format": "raw", "file": "/a,b.img", "aio": "native", "cache_direct": "on",
             "cache_no_flush": "off"},
        ),
        (
            "-drive file=/d,if=none,id=d0,iops_rd=100 -device scsi-hd,drive=d0,bus=s.0 "
            "-device virtio-scsi-pci,id=s,iothread=io3,num_queues=8",
            {"model": "scsi-hd", "file": "/d", "iothread": "io3", "queues": "8", "limits": "iops-read=100"},
        ),
        (
            "-blockdev driver=raw,node-name=d0,file.driver=host_device,file.filename=/dev/sdb,cache.direct=on "
            "-device virtio-blk-pci,drive=d0,queue-size=256",
            {"model": "virtio-blk-pci", "format": "raw", "protocol": "host_device", "file": "/dev/sdb",
             "cache_direct": "on", "queue_size": "256"},
        ),
        ("-device vhost-user-blk-pci,chardev=c0", {"model": "vhost-user-blk-pci", "protocol": "vhost-user"}),
        ("-hda /x.img", {"model": "ide", "file": "/x.img"}),
        (
            "-drive file=nbd://user:secret@host/x,id=n,if=none -device virtio-blk-pci,drive=n",
            {"model": "virtio-blk-pci"},
        ),
    ],
)  # fmt: skip
def test_disks_as_people_write_them(words: str, expected: dict[str, str]) -> None:
    [disk] = disks(words.split())
    assert disk == NONE._replace(**expected), disk


@pytest.mark.parametrize("words", ["", "-device virtio-net-pci,netdev=n", "-drive if=pflash,file=/x", "-cdrom /x"])
def test_what_is_no_disk(words: str) -> None:
    assert disks(words.split()) == []


def test_nodes_in_a_circle_and_broken_words_end() -> None:
    circle = ["-blockdev", "driver=raw,node-name=a,file=b", "-blockdev", "driver=raw,node-name=b,file=a"]
    [disk] = disks([*circle, "-device", "virtio-blk-pci,drive=a"])
    assert disk.file is None
    deep = '{"a":' * 60 + "1" + "}" * 60
    assert disks(["-blockdev", deep, "-blockdev", "{", "-drive", "", "-device", "[]"])[:1] != [None]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A file on an LVM volume over a disk, a loop device over that file, and a free loop device."""
    write(tmp_path, "proc/700/root/image", "")
    write(tmp_path, "images/web.img", "")
    number = (tmp_path / "images/web.img").stat().st_dev
    place = f"{os.major(number)}:{os.minor(number)}"
    write(tmp_path, "proc/1/mountinfo", f"22 1 0:5 / /dev rw - devtmpfs udev rw\n29 1 {place} / / rw - xfs /dev/x rw\n")
    write(tmp_path, "proc/700/cgroup", "0::/vm\n")
    write(tmp_path, "sys/fs/cgroup/vm/io.max", "9:9 riops=20 wbps=max\n")
    write(tmp_path, "sys/fs/cgroup/vm/io.weight", "default 100\n8:0 50\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / f"sys/dev/block/{place}").symlink_to("../../devices/virtual/block/dm-0")
    (tmp_path / "sys/dev/block/9:9").symlink_to("../../devices/pci/block/vda")
    for name, size in (("sda", 100), ("dm-0", 50), ("loop0", 8), ("loop1", 0), ("ram0", 8)):
        write(tmp_path, f"sys/block/{name}/size", f"{size}\n")
    write(tmp_path, "sys/block/sda/queue/scheduler", "none [mq-deadline] kyber\n")
    write(tmp_path, "sys/block/sda/queue/nr_requests", "64\n")
    write(tmp_path, "sys/block/sda/queue/write_cache", "write back\n")
    write(tmp_path, "sys/block/sda/queue/discard_max_bytes", "0\n")
    write(tmp_path, "sys/block/sda/device/queue_depth", "32\n")
    for queue in ("0", "1"):
        write(tmp_path, f"sys/block/sda/mq/{queue}/cpu_list", "0\n")
    write(tmp_path, "sys/block/dm-0/dm/uuid", "LVM-abc\n")
    write(tmp_path, "sys/block/dm-0/dm/name", "vg0-web\n")
    write(tmp_path, "sys/block/dm-0/slaves/sda", "")
    write(tmp_path, "sys/block/loop0/loop/backing_file", "/images/web.img\n")
    (tmp_path / "sys/class").mkdir()
    (tmp_path / "sys/class/block").symlink_to("../block")
    return tmp_path


def test_the_stack_of_block_devices_is_a_tree(host: Path) -> None:
    facts = Facts(Here(host))
    blocks.collect(facts)
    found = values(facts)
    assert {name.split("/")[1] for name in found} == {"sda", "dm-0", "loop0"}
    assert [found[f"block/dm-0/{name}"] for name in ("kind", "mapped", "below")] == ["LVM", "vg0-web", "sda"]
    assert (found["block/loop0/kind"], found["block/loop0/below"], found["block/loop0/filesystem"]) == (
        "loop",
        "dm-0",
        "xfs",
    )
    assert found["block/sda/size_bytes"] == 51200 and found["block/sda/kind"] == "disk"
    names = "scheduler", "nr_requests", "write_cache", "discard", "queue_depth", "queues"
    assert [found[f"block/sda/{name}"] for name in names] == ["mq-deadline", 64, "write back", "off", 32, 2]


def test_where_the_disk_of_a_vm_lies_and_what_limits_it(host: Path) -> None:
    facts = Facts(Here(host))
    vm_disks.collect(facts, 700, "web/07", ["qemu-kvm", "-drive", "file=/image,if=virtio,format=raw"])
    found = {name.partition("web%2F07/")[2]: value for name, value in values(facts).items()}
    assert found == {
        "disk/0/model": "virtio",
        "disk/0/format": "raw",
        "disk/0/file": "/image",
        "disk/0/on": "dm-0",
        "disk/0/filesystem": "xfs",
        "io_max": "vda: reads 20/s",
        "io_weight": "100, 8:0 50",
    }
