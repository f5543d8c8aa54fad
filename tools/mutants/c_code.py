"""Makes single-line faults in the C of a probe: a statement left out, a condition inverted, a comparison or an operator
turned, a constant changed. Comments, declarations and what only the preprocessor decides stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TURNED = {"<=": "<", ">=": ">", "<": "<=", ">": ">=", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
_TURNED.update({"+": "-", "-": "+", "+=": "-=", "<<": ">>", ">>": "<<"})
_OPERATOR = re.compile(r"(?<= )(<=|>=|==|!=|&&|\|\||<<|>>|\+=|[<>+-])(?= )")
_NUMBER = re.compile(r"(?<![\w.\"'])(\d+)(?![\w.\"'])")
_CONDITION = re.compile(r"\b(if|while) \((.*)\)(?=$| [{*/]|\s*/\*)")
_DECLARED = re.compile(
    r"(?:static|struct|const|enum|u8|u16|u32|u64|s32|s64|int|long|char|void|unsigned|typedef|BPF_\w+|case|default)\b"
)
_FUNCTION = re.compile(r"^(?:static inline )?[a-z][\w *]*?\b(\w+)\([^;]*$")
_DEFINED = re.compile(r"#define (\w+) \(?\d")
_WORD = re.compile(r"NC_WORD\([^()]*\)")
"""Text: the zeros at its end mean nothing."""
_COMMENT = re.compile(r"/\*.*?\*/|//.*")
_LEAVES = ("else", "break;", "}", "{")
SMALL = 16
"""Whole numbers up to here become one larger, others twice as large."""


@dataclass(frozen=True)
class Fault:
    """A changed line of a file. ``number`` counts from 1."""

    number: int
    where: str
    before: str
    after: str

    @property
    def name(self) -> str:
        """The same after lines above have changed: function and what changes there."""
        return f"{self.where}: {self.before.strip()} → {self.after.strip() or '(left out)'}"

    def applied(self, text: str) -> str:
        lines = text.split("\n")
        lines[self.number - 1] = self.after
        return "\n".join(lines)


def faults(text: str) -> Iterator[Fault]:
    """All of a file, in the order of its text."""
    where, is_comment, is_program = "", False, False
    for number, line in enumerate(text.split("\n"), 1):
        code = _without_comment(line, is_comment)
        is_comment = _goes_on(line, is_comment)
        header = _FUNCTION.match(line)
        if header:
            where, is_program = header[1], line.startswith("int ")  # nobody asks what a program returns
        elif line.startswith("}"):
            where = ""
        elif code.strip() and ((where and not code.strip().startswith("#")) or _DEFINED.match(code)):
            is_ignored = is_program and code.strip().startswith("return")
            for after in [] if is_ignored else dict.fromkeys(_changed(code, bool(where))):
                if after != code:
                    yield Fault(number, where or "(constant)", line, after)


def _changed(code: str, is_statement: bool) -> Iterator[str]:
    stripped = code.strip()
    if is_statement and stripped.endswith(";") and not _DECLARED.match(stripped) and not stripped.startswith("return"):
        yield re.match(r"\s*", code)[0] + ";" if stripped not in _LEAVES else code  # type: ignore[index]
    if is_statement:
        for match in _CONDITION.finditer(code.rstrip()):
            if "&&" not in code and "||" not in code and _OPERATOR.search(match[2]):
                continue  # its comparison is turned
            yield f"{code[: match.start()]}{match[1]} (!({match[2]})){code[match.end() :]}"
    for match in _OPERATOR.finditer(code):
        if not stripped.startswith("#"):
            yield code[: match.start()] + _TURNED[match[1]] + code[match.end() :]
    if stripped.startswith("return -"):
        return  # which error it is, nobody asks
    words = [match.span() for match in _WORD.finditer(code)]
    for match in _NUMBER.finditer(code):
        if any(begin <= match.start() < end for begin, end in words):
            continue
        value = int(match[1])
        yield code[: match.start()] + str(value + 1 if value <= SMALL else 2 * value) + code[match.end() :]


def _without_comment(line: str, is_comment: bool) -> str:
    if is_comment:
        _, end, line = line.partition("*/")
        if not end:
            return ""
    return _COMMENT.sub("", line).partition("/*")[0].rstrip()


def _goes_on(line: str, is_comment: bool) -> bool:
    """Whether a comment goes on in the next line."""
    return line.rfind("/*") > line.rfind("*/") or (is_comment and "*/" not in line)
