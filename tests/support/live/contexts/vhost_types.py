"""vhost's structures, as far as probes name their members (drivers/vhost/vhost.h and net.c)."""

from __future__ import annotations

from tests.support.live.contexts.hooks import ModuleTypes

POLL = {"wait": 0, "work": 40, "mask": 64, "bytes": 72}
QUEUE = {"poll": 0, "private_data": 72, "kick": 80, "call_ctx": 88, "avail": 96, "acked_features": 104, "num": 112}
QUEUE |= {"last_used_idx": 116, "used_flags": 118, "last_avail_idx": 120, "bytes": 128}
NET_QUEUE = {"vq": 0, "vhost_hlen": 128, "sock_hlen": 136, "rx_ring": 144, "rxq": 152, "bytes": 168}
NET = {"vqs": 8, "poll": 8 + 2 * NET_QUEUE["bytes"], "bytes": 8 + 2 * NET_QUEUE["bytes"] + 2 * POLL["bytes"]}
"""Where members lie in vhost's structures here."""


def vhost(types: ModuleTypes) -> None:
    """What the programs name of drivers/vhost/vhost.h and net.c."""
    pointer, long = types.pointer(0), types.integer("unsigned long", 8)
    number, short = types.integer("unsigned int", 4), types.integer("unsigned short", 2)
    work = types.record("vhost_work", 24, [("fn", pointer, 64)])
    poll = types.record(
        "vhost_poll",
        POLL["bytes"],
        [
            ("wait", types.kernels("wait_queue_entry"), POLL["wait"] * 8),
            ("work", work, POLL["work"] * 8),
            ("mask", number, POLL["mask"] * 8),
        ],
    )
    call = types.record("vhost_vring_call", 8, [("ctx", pointer, 0)])
    kinds = {"poll": poll, "call_ctx": call, "acked_features": long, "num": number}
    kinds.update({"last_used_idx": short, "used_flags": short, "last_avail_idx": short})
    members = [(name, kinds.get(name, pointer), place * 8) for name, place in QUEUE.items() if name != "bytes"]
    queue = types.record("vhost_virtqueue", QUEUE["bytes"], members)
    buffer = types.record("vhost_net_buf", 16, [("queue", pointer, 0), ("tail", number, 64), ("head", number, 96)])
    kinds = {"vq": queue, "vhost_hlen": long, "sock_hlen": long, "rx_ring": pointer, "rxq": buffer}
    members = [(name, kinds[name], place * 8) for name, place in NET_QUEUE.items() if name != "bytes"]
    net_queue = types.record("vhost_net_virtqueue", NET_QUEUE["bytes"], members)
    arrays = [("vqs", types.array(net_queue, 2), NET["vqs"] * 8), ("poll", types.array(poll, 2), NET["poll"] * 8)]
    types.record("vhost_vring_file", 8, [("index", number, 0), ("fd", types.integer("int", 4), 32)])
    types.record("vhost_net", NET["bytes"], arrays)
