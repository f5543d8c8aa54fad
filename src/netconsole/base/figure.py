"""Writes figures and outside text, the same way everywhere: three significant digits (two below 1) and a unit.

A count that may be too low because of losses is written with ``≥``, one that was scaled with ``≈`` (where a function
takes ``at_least``, it takes the mark itself, too). An unknown figure is an en dash, never a 0. Text
from outside (interface and process names, reasons, errors) always goes through :func:`safe`, and is never markup.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache

UNKNOWN = "–"
AT_LEAST = "≥"
LEAST_PCT = 0.01
"""Below this a percentage is said to be less than it."""
ABOUT = "≈"
"""Of a count that was scaled from a share of what there was."""

_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")
_DURATIONS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_WRITTEN_TIME = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


_SHARES = {50.0: "half", 10.0: "1 in 10", 1.0: "1 in 100", 0.1: "1 in 1000"}
_NEAR = 0.1
"""So near to it a share is said by its words, too."""
_LEAST_NAME = 12


def number(value: float | None, at_least: bool | str = False) -> str:
    """Three significant digits with k, M, G: 999, 1.23k, 45.6M; two below 1: 0.47. Integers have no decimals."""
    if value is None or math.isnan(value):
        return UNKNOWN
    mark = _mark(at_least)
    if math.isinf(value):
        return mark + ("-" if value < 0 else "") + "inf"
    sign = "-" if value < 0 else ""
    size = abs(value)
    if size < 1000 and float(size).is_integer():
        return f"{mark}{sign}{int(size)}"
    step = 0
    while size >= 999.5 and step < len(_THOUSANDS) - 1:
        size /= 1000
        step += 1
    return f"{mark}{sign}{_digits(size)}{_THOUSANDS[step]}"


def count(value: int | None, at_least: bool | str = False) -> str:
    """An exact count with all digits. A narrow no-break space (U+202F) separates thousands."""
    if value is None:
        return UNKNOWN
    return _mark(at_least) + f"{value:,}".replace(",", "\u202f")


def rate(value: float | None, unit: str = "", at_least: bool | str = False) -> str:
    """A figure per second: 1.23k packets/s."""
    if value is None or math.isnan(value):
        return UNKNOWN
    return f"{number(value, at_least)}{' ' + unit if unit else ''}/s"


def percent(value: float | None, at_least: bool | str = False, digits: int = 3) -> str:
    """A percentage: 1.34 %, or 1.3 % with fewer digits.

    What is not all is never rounded to 100 %, and what is there never to 0 %.
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    if 0 < value < LEAST_PCT:
        return f"{_mark(at_least)}0 %" if at_least else f"< {LEAST_PCT} %"
    if 1 < abs(value) < 100 and not float(value).is_integer():
        most = 100 - 10.0 ** (2 - digits)
        text = f"{max(-most, min(value, most)):#.{digits}g}".rstrip(".")
        return f"{_mark(at_least)}{text} %"
    return f"{number(value, at_least)} %"


def share(value: float | None, whole: str) -> str:
    """A percentage of something, in words too where they say it sooner: ``half, 50 % of its packets``."""
    exact = f"{percent(value)} of {whole}"
    if value is None or math.isnan(value):
        return exact
    if value >= 100:
        return f"all of {whole}"
    near = (words for pct, words in _SHARES.items() if abs(value - pct) <= _NEAR * pct)
    return f"{words}, {exact}" if (words := next(near, "")) else exact


def duration(value: float | None, unit: str = "ns") -> str:
    """A time given in ns, us, ms or s, written in the best unit: 85.3 us."""
    if value is None or math.isnan(value):
        return UNKNOWN
    value_ns = value * _NANOSECONDS[unit]
    for size, name in _DURATIONS:
        if abs(value_ns) >= size * 0.9995:
            return f"{number(value_ns / size)} {name}"
    return f"{number(value_ns)} ns"


def memory(value_kb: float | None) -> str:
    """Memory given in kB (1024 bytes): 12.8 MB."""
    if value_kb is None:
        return UNKNOWN
    return f"{number(value_kb)} kB" if value_kb < 1024 else f"{number(value_kb / 1024)} MB"


INDEX = "index"
"""The unit of a gauge that is a place, such as a position in a ring: it is written exactly, and never compared."""


def quantity(value: float | None, unit: str, at_least: bool | str = False) -> str:
    """A figure in the unit of a manifest: times and percentages as above, anything else as number and unit."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if unit in _NANOSECONDS:
        return _mark(at_least) + duration(value, unit)
    if unit in ("percent", "%"):
        return percent(value, at_least)
    if unit == "kB":
        return memory(value)
    if unit == INDEX:
        return str(round(value)) if math.isfinite(value) else UNKNOWN
    text = number(value, at_least)
    return f"{text} {unit}" if unit else text


def amount(value: float | None, unit: str, at_least: bool | str = False) -> str:
    """What is counted in this unit: a number whose unit is said elsewhere, or a time with its own (1.23k, 903 ms)."""
    return quantity(value, unit, at_least) if unit in _NANOSECONDS else number(value, at_least)


def things(value: int | None, what: str, at_least: bool | str = False) -> str:
    """An exact count of what is named in the plural: 1 packet, 1 234 packets, 1 echo. A time in its best unit."""
    if what in _NANOSECONDS:
        return quantity(value, what, at_least)
    text = count(value, at_least)
    if value == 1:
        ends = (("ies", "y"), ("oes", "o"), ("sses", "ss"), ("ches", "ch"), ("s", ""))
        plural, singular = next((end for end in ends if what.endswith(end[0])), ("", ""))
        what = what[: len(what) - len(plural)] + singular
    return f"{text} {what}".rstrip()


def elapsed(seconds: float | None) -> str:
    """A span on the clock: 00:04:12."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    whole = max(0, int(seconds))
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def lasted(seconds: float) -> str:
    """How long something lasted: 22 s, 12 min, 3.5 h."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def safe(text: object, limit: int = 256) -> str:
    """Any outside text as printable text, at most ``limit`` characters (a cut ends in ``…``).

    Escape, control, direction and invisible characters become ``\\x1b`` and the like, so the terminal never gets them.
    """
    if text is None:
        return UNKNOWN
    source = str(text)
    if len(source) <= limit and source.isascii() and source.isprintable():
        return source  # nearly all text; the code below takes ten times as long
    written: list[str] = []
    for character in source[:limit]:
        if unicodedata.category(character) in _UNPRINTABLE or (
            unicodedata.combining(character) and not (written and written[-1].isalnum())
        ):
            written.append(_escaped(character))
        else:
            written.append(character)
    return "".join(written) + ("…" if len(source) > limit else "")


def place(path: object, limit: int = 256) -> str:
    """A file's path as printable text. Of a path longer than ``limit`` only the end, where paths differ."""
    source = str(path)
    return safe(source, limit) if len(source) <= limit else f"…{safe(source[-limit:], limit)}"


def width(text: str) -> int:
    """Terminal columns of a text from :func:`safe`: wide characters take two, combining ones none."""
    return len(text) if text.isascii() else _columns(text)


@lru_cache(maxsize=1024)
def _columns(text: str) -> int:
    columns = 0
    for character in text:
        if unicodedata.combining(character):
            continue
        columns += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return columns


def fit(text: str, columns: int, right: bool = False) -> str:
    """Cut or pad to exactly this many terminal columns. A cut ends in ``…``."""
    if width(text) > columns:
        kept = ""
        for character in text:
            if width(kept + character) > columns - 1:
                break
            kept += character
        text = kept + "…" if columns > 0 else ""
    padding = " " * (columns - width(text))
    return padding + text if right else text + padding


def fit_ends(head: str, tail: str, columns: int) -> str:
    """Both in this many columns: the head is cut first, then what the tail has beyond half of them."""
    of_head = min(width(head), max(columns - width(tail), columns // 2))
    return fit(head, of_head) + fit(tail, min(columns - of_head, width(tail)))


def fit_sentence(who: str, why: str, rest: str, columns: int) -> str:
    """A sentence in this many columns: the rest is cut first, then the name as far as it tells, the cause last."""
    room = columns - width(why) - bool(rest)
    of_who = min(width(who), max(room, _LEAST_NAME))
    text = fit(who, of_who) + why + rest
    return fit(text, columns) if width(text) > columns else text


def mark(at_least: bool, is_scaled: bool) -> str:
    """What stands before a count: ≥ where it is a lower bound, ≈ where it was scaled."""
    return AT_LEAST if at_least else ABOUT if is_scaled else ""


def _mark(at_least: bool | str) -> str:
    return at_least if isinstance(at_least, str) else AT_LEAST if at_least else ""


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _digits(size: float) -> str:
    if size >= 0.9995:
        return f"{size:#.3g}".rstrip(".")
    if not size:
        return "0"
    text = f"{size:.2g}"
    return text if "e" not in text else f"{size:.{1 - math.floor(math.log10(size))}f}"


def parse_duration(text: str) -> float | None:
    """Seconds of a text such as 500ms, 10s, 5m or 1h; None when it is none."""
    match = _WRITTEN_TIME.fullmatch(text)
    return float(match[1]) * _SECONDS[match[2]] if match else None
