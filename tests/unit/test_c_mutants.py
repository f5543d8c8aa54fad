"""Faults in C: of code alone, each on one line, and named so that it is found again."""

from __future__ import annotations

from pathlib import Path

from tools.mutants.c_code import faults
from tools.mutants.c_trial import SAME

ROOT = Path(__file__).parents[2]
CODE = """\
/* a comment: if (a < 1) b = 2; */
#define MOST 256     /* 3 */
#include "x.h"
static inline u32 least(u32 one)
{
    u32 none = 0;
    /* not here: one += 5;
     * nor here; */
    if (one <= MOST && one)
        nc_ledger_add(NC_MAP_FULL);
    return 7;
}

int program(struct bpf_raw_tracepoint_args *ctx)
{
    return 0;
}
"""


def test_each_fault_changes_one_line_of_code() -> None:
    assert [(one.where, one.after.strip()) for one in faults(CODE)] == [
        ("(constant)", "#define MOST 512"),
        ("least", "u32 none = 1;"),
        ("least", "if (!(one <= MOST && one))"),
        ("least", "if (one < MOST && one)"),
        ("least", "if (one <= MOST || one)"),
        ("least", ";"),
        ("least", "return 8;"),
    ]


def test_a_fault_is_put_into_the_text_and_has_a_name() -> None:
    left_out = next(one for one in faults(CODE) if one.after.strip() == ";")
    assert left_out.name == "least: nc_ledger_add(NC_MAP_FULL); → ;"
    changed = left_out.applied(CODE).split("\n")
    assert [number for number, line in enumerate(CODE.split("\n")) if line != changed[number]] == [9]


def test_what_is_said_to_change_nothing_is_a_fault_of_its_file_and_has_a_reason() -> None:
    for file, reasons in SAME.items():
        names = {one.name for one in faults((ROOT / file).read_text())}
        assert reasons.keys() <= names and all(reasons.values())
