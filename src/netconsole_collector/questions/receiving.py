"""Question `receiving`: by how many queues and CPUs a device receives, and how many packets its rings have room for.

`ring`, `ring_max`: packets of a receive ring, now and at most. `queues`, `queues_max`: receive queues. `irq_cpus`: so
many CPUs its interrupts go to. `udp_by`: "addresses" where the ports of UDP over IPv4 do not choose the queue, of
several; "ports" where they do. `held_us`: for so long its interrupts are held back for programs that poll busily
(gro_flush_timeout, where napi_defer_hard_irqs is set); null: they are not. `held_packets`: at most so many arrive
meanwhile, the smallest ones at the speed of its link. `gro`: "on" or "off". What the driver does not tell is null.
"""

from typing import Any, Mapping, Optional

from netconsole_collector.names.fact_keys import FactValue, key, parts
from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.questions.facts import nics
from netconsole_collector.questions.facts.reading import Facts
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.within import within

_SMALLEST_BITS = 672
"""Of the shortest Ethernet frame on the wire: 64 bytes, with 20 of preamble and gap."""


def answer(arguments: Json) -> Any:
    """Of ``device``."""
    device = text(arguments, "device")
    return within(arguments, lambda: asked(HERE, device))


def asked(host: Here, device: str) -> Json:
    """As :func:`answer`, of any host."""
    facts = Facts(host)
    nics.hardware(facts, device)
    found: Mapping[str, FactValue] = {name: fact.value for name, fact in facts.taken().items()}

    def number(*names: str) -> Optional[int]:
        value = found.get(key("nic", device, *names))
        return value if isinstance(value, int) and value > 0 else None

    kind = "combined" if number("channels", "combined_count") else "rx"
    queues = number("channels", kind + "_count")
    held_us = _held_us(number("napi_defer_hard_irqs"), number("gro_flush_timeout"))
    return {
        "ring": number("ring", "rx"),
        "ring_max": number("ring", "rx_max"),
        "queues": queues,
        "queues_max": number("channels", "max_" + kind),
        "irq_cpus": _cpus(found),
        "held_us": held_us,
        "held_packets": _held_packets(held_us, number("link", "speed")),
        "gro": _gro(found.get(key("nic", device, "offload", "rx-gro"))),
        "udp_by": _udp_by(found.get(key("nic", device, "rss_hash", "udp4"))) if (queues or 0) > 1 else None,
    }


def _cpus(found: Mapping[str, FactValue]) -> Optional[int]:
    """How many different ones, where each interrupt has a single one."""
    cpus = {value for name, value in found.items() if parts(name)[-1] == "effective_cpus"}
    return len(cpus) if cpus and all(isinstance(one, str) and one.isdigit() for one in cpus) else None


def _held_us(times: Optional[int], timeout_ns: Optional[int]) -> Optional[int]:
    return timeout_ns // 1000 if times and timeout_ns else None


def _held_packets(held_us: Optional[int], speed_mbit: Optional[int]) -> Optional[int]:
    return held_us * speed_mbit // _SMALLEST_BITS if held_us and speed_mbit else None


def _gro(told: FactValue) -> Optional[str]:
    return told.split()[0] if isinstance(told, str) and told.split() else None


def _udp_by(fields: FactValue) -> Optional[str]:
    """``fields`` as ``ethtool -N`` has them: s and d are the addresses, f and n the ports."""
    if not isinstance(fields, str) or not set("sd") & set(fields):
        return None
    return "ports" if set("fn") & set(fields) else "addresses"
