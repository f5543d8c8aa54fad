"""The one table of words for states: what a level means, and how each state is written everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from netconsole.telemetry.frames import ProbeStatus

LEVELS: Mapping[str, str] = MappingProxyType(
    {"!!": "act", "!": "look at it", "?": "unknown", "ok": "good", "off": "switched off"}
)
"""What each level means, the worst first."""
URGENCY: Mapping[str, int] = MappingProxyType({level: place for place, level in enumerate(LEVELS)})
"""The lower, the worse."""
PROBE_STATES: Mapping[ProbeStatus, tuple[str, str]] = MappingProxyType(
    {
        "compiling": ("", "compiling…"),
        "attaching": ("", "attaching…"),
        "attached": ("ok", "ok"),
        "degraded": ("!", "degraded"),
        "failed": ("!!", "failed"),
        "unsupported": ("?", "unsupported"),
        "off": ("off", "off"),
    }
)
"""The level of each state of a probe, and its word. Without a level it is on its way."""
BUDGET_LEVELS: Mapping[str, str] = MappingProxyType(
    {"ok": "ok", "near": "!", "over": "!", "no budget": "off", "no limit": "off", "starting": "off", "?": "?"}
)
"""The level of each word for a cost and its limit. Findings of the budget have the same."""
LIVE, PAUSED, ENDED = "LIVE", "PAUSED", "ENDED"
LINE_LOST, COLLECTOR_LOST = "!! LINE LOST", "!! COLLECTOR LOST"
"""What a screen shows: figures of now, those of the moment of a pause, or the last ones."""
GOOD, UNKNOWN, IDLE = ("ok", "ok"), ("?", "unknown"), ("off", "idle")
"""A row at which nothing is wrong: something passes, nobody knows whether, nothing passes."""

TROUBLES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "stuck: detached": (
            "!!", "the ring is full; QEMU took the queue from vhost: the VM is paused, or its driver was reset"
        ),
        "stuck: VM paused": (
            "!!", "the ring is full; QEMU runs none of the VM's virtual CPUs (virsh domstate --reason)"
        ),
        "stuck: VM stopped": ("!!", "the ring is full; the VM's QEMU process gets no CPU (SIGSTOP, or a debugger)"),
        "stuck: guest": ("!!", "the ring is full; the guest got an interrupt and did not react: it hangs, or lost it"),
        "stuck: no poll": (
            "!!", "the ring is full; the guest wants no interrupt and takes nothing: it hangs, or does not poll"
        ),
        "stuck: worker": ("!!", "the ring is full and the vhost worker does not run, although the guest has buffers"),
        "ring full": ("!!", "the guest takes packets, but fewer than arrive"),
        "no buffers": ("!", "there were packets for the guest, but no free buffers"),
        "late worker": ("!", "the vhost worker runs 10 times later than before, or waits for a CPU 30 % of the time"),
        "no handler": ("!!", "no handler is registered: every new flow is lost"),
        "handler gone": ("!!", "ovs-vswitchd is gone: every new flow is lost"),
        "queue full": ("!!", "the handlers of ovs-vswitchd do not keep up: new flows lose packets"),
        "loses upcalls": ("!!", "upcalls do not reach ovs-vswitchd and are lost"),
        "ended": ("!!", "ovs-vswitchd has ended: every new flow is lost"),
        "no answer": ("!!", "ovs-vswitchd does not answer: it is stopped or busy"),
        "table full": ("!", "the datapath's flow table is at its limit"),
        "slow dumps": ("!", "ovs-vswitchd takes over 1 s to look through its flows"),
        "slow answers": ("!", "1 upcall in 100 takes over 10 ms"),
    }
)  # fmt: skip
"""The states of queues and datapaths that need a look: the level, and the meaning in a sentence that fits 80 columns
with the name of a datapath."""


def trouble(word: str) -> tuple[str, str]:
    """A state of TROUBLES with its level. One that is not there, such as a lost upcall's error, is the worst."""
    return TROUBLES.get(word, ("!!", ""))[0], word


def meaning(word: str) -> str:
    """What a state means; empty for one that explains itself."""
    return TROUBLES.get(word, ("", ""))[1]


def said(level: str, word: str) -> str:
    """A state as people read it: ``!! failed``, ``ok``. The level is left out where the word says it already."""
    return word if level in ("", "ok", "off") else f"{level} {word}"


def budget_word(word: str) -> str:
    """A word for a cost and its limit, as people read it: ``! over``."""
    level = BUDGET_LEVELS[word]
    return word if word == level else said(level, word)


def short_reason(why: str) -> str:
    """Why a probe does not run, as several say it: what this one alone would measure stands behind a semicolon."""
    return why.partition("; ")[0]


def probe_state(status: str) -> str:
    """The state of a probe as people read it. A state of a later version is shown as it is."""
    for known, (level, word) in PROBE_STATES.items():
        if known == status:
            return said(level, word)
    return status
