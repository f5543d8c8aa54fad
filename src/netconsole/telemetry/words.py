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
