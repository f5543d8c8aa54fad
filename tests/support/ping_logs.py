"""Makes logs as the tools of the field write them (their grammar; the figures are made up)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

RULE = "=" * 80
Times = tuple[float, float, float]
NAMES = {
    "EC": {
        "TX": ("P1:S0 (ip_local_out)", "P1:S1 (dev_queue_xmit)", "P2:S0 (__netif_receive_skb)", "P2:S2 (icmp_rcv)"),
        "RX": ("P1:S0 (__netif_receive_skb)", "P1:S2 (icmp_rcv)", "P2:S0 (ip_local_out)", "P2:S1 (dev_queue_xmit)"),
    },
    "DV": {
        "TX": ("P1 (ip_local_out)", "P1 (net_dev_xmit)", "P2 (netif_receive_skb)", "P2 (icmp_rcv)"),
        "RX": ("P1 (netif_receive_skb)", "P1 (icmp_rcv)", "P2 (ip_local_out)", "P2 (net_dev_xmit)"),
    },
}


def rtt(direction: str, echoes: Sequence[Times], variant: str = "EC", missing: Sequence[int] = ()) -> str:
    """kernel_icmp_rtt. ``missing``: echoes whose reply it did not see begin."""
    said = "TX (Local -> Remote)" if direction == "TX" else "RX (Remote -> Local)"
    names = NAMES[variant][direction]
    lines = ["Ping Session: 192.0.2.7 -> 192.0.2.9", "Local IP: 192.0.2.7", "Monitoring interface(s): eth0"]
    for seq, (request, between, reply) in enumerate(echoes, 1):
        gone = seq in missing
        one, other = f"{request:7.3f}", "   N/A " if gone else f"{reply:7.3f}"
        lines += [
            RULE,
            f"=== ICMP RTT Trace: 2031-02-03 04:05:06.789 ({said}) ===",
            f"Session: 192.0.2.7 -> 192.0.2.9 (ID: 4242, Seq: {seq})",
            "Path 1 (Request: TX to 192.0.2.9)            : PID=311    COMM=ping         IF=eth0       ICMP_Type=8",
            "Path 2 (Reply:   RX from 192.0.2.9)          : PID=0      COMM=swapper/2    IF=eth0       ICMP_Type=0",
            "",
            "SKB Pointers:",
            f"  Stage 0 ({names[0]:<40}): 0xffff8880",
            "",
            "Path 1 Latencies (us):",
            f"  [0->1] {names[0]:<40} -> {names[1]:<40}: {one} us",
            f"  Total Path 1: {one} us",
            "",
            "Path 2 Latencies (us):",
            f"  [3->5] {names[2]:<40} -> {names[3]:<40}: {other} us",
            *([] if gone else [f"  Total Path 2: {other} us"]),
            "",
            f"Total RTT (Path1 Start to Path2 End): {request + between + reply:7.3f} us",
            f"Inter-Path Latency (P1 end -> P2 start): {'   N/A ' if gone else f'{between:7.3f}'} us",
            "",
            "Kernel Stack Traces:",
            f"  Stage 0 ({names[0]}):",
            "    b'__ip_local_out+0x1'",
            RULE,
            "",
        ]
    return "\n".join(lines)


def drops(rx: str, tx: str, echoes: Sequence[Times], lost: Sequence[tuple[int, str]] = (), young: int = 0) -> str:
    """icmp_drop_detector. ``lost``: sequences with the words of their place. ``young``: flows without an end."""
    lines = [
        "=== ICMP Drop Detector ===",
        "Source IP: 192.0.2.7",
        "Destination IP: 192.0.2.9",
        f"RX Interface(s): {rx}(ifindex=3)",
        f"TX Interface(s): {tx}(ifindex=4), slave1(ifindex=5)",
        "Timeout: 1000 ms",
        "Flow path:",
    ]
    for seq, (request, between, reply) in enumerate(echoes, 1):
        head = f"2031-02-03 04:05:06.789 [new] ID=4242 Seq={seq} ReqRX:Y ReqTX:- RepRX:- RepTX:-"
        times = f"ReqInternal={request:.1f}  External={between:.1f}  RepInternal={reply:.1f}"
        lines += [
            head,
            head.replace("[new]", "[update]"),
            head.replace("[new]", "[complete]").replace("-", "Y"),
            f"  Latency(us): {times}  Total={request + between + reply:.1f}",
            "-" * 80,
        ]
    for seq, words in lost:
        lines += [
            f"2031-02-03 04:05:06.789 [new] ID=4242 Seq={seq} ReqRX:Y ReqTX:- RepRX:- RepTX:-",
            "",
            "=== ICMP Drop Detected: 2031-02-03 04:05:07.900 ===",
            f"Flow: 192.0.2.7 -> 192.0.2.9 (ID=4242, Seq={seq})",
            "  [0] ReqRX: recorded",
            "  [1] ReqTX: MISSING",
            "",
            f"Drop Location: {words}",
            "  Packet dropped between interfaces",
        ]
    lines += [
        f"2031-02-03 04:05:06.789 [new] ID=4242 Seq={900 + n} ReqRX:Y ReqTX:- RepRX:- RepTX:-" for n in range(young)
    ]
    lines += ["", "=== ICMP Flow Statistics ===", f"Total flows tracked: {len(echoes) + len(lost)}"]
    return "\n".join(lines)


def irq(type: int, stages_us: Sequence[Sequence[int]], printed: bool = True, last: int = 5) -> str:
    """tun_tx_to_kvm_irq. Stage 4's delay is from stage 2, as the tool has it. Between echoes is other traffic."""
    lines = []
    for seq, (s1, s2, s3, s4) in enumerate(stages_us, 1):
        delays = {2: s1, 3: s2, 4: s2 + s3, 5: s4}
        packet = f"ICMP 192.0.2.7 -> 192.0.2.9 type={type} code=0 id=4242 seq={seq}"
        names = {2: "vhost_signal", 3: "eventfd_signal", 4: "irqfd_wakeup", 5: "posted_int"}
        head, tail = "TUN TX INTERRUPT [vnet3:q1]", "CPU=4 PID=0 COMM=swapper/4"
        time = f"Time=1970-01-12 13:46:40.{seq:03}"
        lines.append(f"{head} Stage 1 [tun_net_xmit]: {time} Queue=1 Sock(tfile)=0x1 {tail} {packet}")
        for stage in range(2, last + 1):
            where = "Vector(arg)=37 VCPU=0x1" if stage == 5 else "EventFD(vq)=0xab"
            lines.append(
                f"{head} Stage {stage} [{names[stage]}]: {time} {where} Delay={delays[stage] / 1000:.3f}ms {tail}"
            )
        if printed and last == 5:
            lines.append(f"  -> Total(S1->S5): {sum(delays.values()) / 1000:.3f}ms")
        lines.append(
            f"{head} Stage 1 [tun_net_xmit]: {time} Queue=1 Sock(tfile)=0x1 {tail} TCP 192.0.2.7:5 -> 192.0.2.9:6"
        )
        lines.append(f"{head} Stage 2 [vhost_signal]: {time} EventFD(vq)=0xab Delay=9.000ms {tail}")
    return "\n".join([*lines, "TUN TX QUEUE INTERRUPT TRACING STATISTICS", f"Total events collected: {len(lines)}"])


def irq_json(type: int, stages_us: Sequence[Sequence[int]]) -> str:
    """The same as its JSON: events with ns since the machine started, id and sequence in network order."""
    events: list[dict[str, Any]] = []
    for seq, stages in enumerate(stages_us, 1):
        at = seq * 10**9
        swapped = (seq & 0xFF) << 8 | seq >> 8
        base = {"queue_key": "vnet3:q1", "protocol": 1, "comm": "x", "saddr": 1, "gsi": 37}
        events.append(
            {
                **base,
                "stage": 1,
                "timestamp": at,
                "icmp_type": type,
                "icmp_id": 0x9210,
                "icmp_seq": swapped,
                "delay_ns": 0,
            }
        )
        for stage, length in enumerate(stages, 2):
            at += length * 1000
            events.append({**base, "stage": stage, "timestamp": at, "eventfd_ctx": 171, "delay_ns": length * 1000})
    return json.dumps(events)


def kick(stages_us: Sequence[Sequence[int]]) -> str:
    """kvm_vhost_tun_latency_details, with a packet of which two stages are not known."""
    lines = [
        f"[04:05:06.789] tid=901 queue=2 s0={s0}us s1={s1}us s2={s2}us total={s0 + s1 + s2}us"
        for s0, s1, s2 in stages_us
    ]
    return "\n".join([*lines, "[04:05:06.789] tid=901 queue=2 s0=0us s1=0us s2=3us total=0us", "[final] ... totals"])
