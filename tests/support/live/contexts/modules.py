"""Types of modules that a kernel of a test may lack, as the programs name them, laid out in a way of our own."""

from __future__ import annotations

from tests.support.live.contexts.hooks import Modules, ModuleTypes
from tests.support.live.contexts.memory import kernel_types, place_of
from tests.support.live.contexts.ovs_types import datapath
from tests.support.live.contexts.vhost_types import vhost

OUTPUT, CONNTRACK = 1, 12
MISS, FOR_USER_SPACE = 1, 2
"""OVS_ACTION_ATTR_… and OVS_PACKET_CMD_… of include/uapi/linux/openvswitch.h."""
COMMAND_AT, UPCALL_BYTES = 32, 40
KICK_AT, CALL_AT, WORK_AT, DATA_AT, QUEUE_BYTES = 8, 24, 48, 80, 96
"""In a vhost_virtqueue as it is here. It has 8 bytes before it in a vhost_net_virtqueue."""
RING_AT, NET_QUEUE_BYTES = 104, 112
ROOM = 512
"""More bytes than any of these structures has."""
IRQFD = {"wait": 8, "eventfd": 64, "inject": 72}
IOEVENTFD = {"addr": 16, "length": 24, "eventfd": 32, "datamatch": 40, "dev": 48, "wildcard": 64}
"""Where KVM's structures have what the programs read, if this kernel does not say so itself."""


def openvswitch(types: ModuleTypes) -> None:
    """What the programs name of the module: net/openvswitch/datapath.h."""
    types.enum("ovs_action_attr", [("OVS_ACTION_ATTR_OUTPUT", OUTPUT), ("OVS_ACTION_ATTR_CT", CONNTRACK)])
    types.enum("ovs_packet_cmd", [("OVS_PACKET_CMD_MISS", MISS), ("OVS_PACKET_CMD_ACTION", FOR_USER_SPACE)])
    pointer, byte = types.pointer(0), types.integer("unsigned char", 1)
    members = [("egress_tun_info", pointer, 0), ("userdata", pointer, 64), ("actions", pointer, 128)]
    types.record("dp_upcall_info", UPCALL_BYTES, [*members, ("cmd", byte, COMMAND_AT * 8)])


def vhost_and_kvm(types: ModuleTypes) -> None:
    """What the programs name of both, laid out in a way of our own: drivers/vhost/vhost.h, virt/kvm/eventfd.c."""
    pointer, word = types.pointer(0), types.integer("unsigned long long", 8)
    file, eventfd = types.pointer(types.kernels("file")), types.pointer(types.kernels("eventfd_ctx"))
    work = types.record("vhost_work", 16, [("node", pointer, 0), ("fn", pointer, 64)])
    poll = types.record("vhost_poll", 24, [("table", pointer, 0), ("work", work, 64)])
    call = types.record("vhost_vring_call", 16, [("lock", word, 0), ("ctx", eventfd, 64)])
    queue = types.record(
        "vhost_virtqueue",
        QUEUE_BYTES,
        [
            ("dev", pointer, 0),
            ("kick", file, KICK_AT * 8),
            ("call_ctx", call, (CALL_AT - 8) * 8),
            ("poll", poll, (WORK_AT - 8) * 8),
            ("private_data", pointer, DATA_AT * 8),
        ],
    )
    types.record("vhost_net_virtqueue", NET_QUEUE_BYTES, [("vq", queue, 64), ("rx_ring", pointer, RING_AT * 8)])
    if kernel_types().record("_ioeventfd") is None:  # else KVM is built in
        _kvm(types)


def _kvm(types: ModuleTypes) -> None:
    word, number, byte = (
        types.integer(name, size) for name, size in (("unsigned long long", 8), ("int", 4), ("unsigned char", 1))
    )
    eventfd, job = types.pointer(types.kernels("eventfd_ctx")), types.kernels("work_struct")
    kinds = {"wait": types.kernels("wait_queue_entry"), "eventfd": eventfd, "inject": job}
    types.record("kvm_kernel_irqfd", ROOM, [(name, kinds[name], at * 8) for name, at in IRQFD.items()])
    device = types.record("kvm_io_device", 8, [("ops", types.pointer(0), 0)])
    kinds = {"addr": word, "length": number, "eventfd": eventfd, "datamatch": word, "dev": device, "wildcard": byte}
    types.record("_ioeventfd", ROOM, [(name, kinds[name], at * 8) for name, at in IOEVENTFD.items()])


def place(name: str, member: str) -> int:
    """Where a structure of KVM has a member: as this kernel says, or as the test has made it."""
    try:
        return place_of(name, member)[0]
    except KeyError:
        return {"kvm_kernel_irqfd": IRQFD, "_ioeventfd": IOEVENTFD}[name][member]


OF_PROBE: dict[str, Modules] = {
    "host_path": {"openvswitch": openvswitch},
    **{name: {"openvswitch": datapath} for name in ("ovs_drops", "ovs_upcalls")},
    "echo_host": {"vhost_net": vhost_and_kvm},
    **{name: {"vhost_net": vhost} for name in ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path", "kvm_irqs")},
}
