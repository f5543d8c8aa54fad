"""Reads the offsets that a compiled program really uses for each member. The interpreter that has bcc runs it.

Standard input: [{"types": C text, "members": [[struct, member], …]}, …]; standard output, by the way of reading:
{"read": [[offset, …], …], "load": …}.
offsetof() and static asserts do not help here: clang computes them early, with the host's layout. They look right even
when the code is wrong.
"""

import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, sys.argv[1])

from netconsole_collector.types import header_tree

_ADD_CONSTANT = 0x07
"""BPF_ALU64 | BPF_ADD | BPF_K."""
_CALL = 0x85
"""BPF_JMP | BPF_CALL."""

# A scope for each header: what they declare differently does not meet, and all are compiled at once.
_FUNCTION = """
int {way}{number}(void *ctx)
{{
    {types}
    char value = 0;
    {reads}
    return value;
}}
"""
_CAST = "static char *(*cast)(u64 address, u32 type) = (void *)0x7ffffff0;"
"""As bpf_rdonly_cast is compiled (probes/common/kernel_memory.h)."""
# The address is loaded anew each time, for the call before may have changed it. Not volatile: for that LLVM adds up the
# offset early, in the host's layout, and finds nothing wrong with padding that is.
_WAYS = {
    "read": "bpf_probe_read(&value, 1, &(({record} *)*(void **)ctx)->{member});",
    "load": "value += *cast((u64)&(({record} *)*(void **)ctx)->{member}, 1);",
}
"""By a helper, and by a load of the program itself."""


def added(code: bytes) -> "list[int]":
    """The sum of the positive constants that are added before each call: the negative ones are places on the stack."""
    totals = []
    total = 0
    for at in range(0, len(code), 8):
        constant = struct.unpack_from("=i", code, at + 4)[0]
        if code[at] == _CALL:
            totals.append(total)
            total = 0
        elif code[at] == _ADD_CONSTANT and constant > 0:
            total += constant
    return totals


def main() -> None:
    from bcc import BPF

    headers = json.load(sys.stdin)
    text = _CAST
    for number, header in enumerate(headers):
        for way, read in _WAYS.items():
            reads = "\n    ".join(read.format(record=record, member=member) for record, member in header["members"])
            text += _FUNCTION.format(way=way, number=number, types=header["types"], reads=reads)
    with tempfile.TemporaryDirectory() as directory:
        header_tree.write(directory, header_tree.files(""))
        os.environ["BCC_KERNEL_SOURCE"] = directory
        program = BPF(text=text.encode())
        offsets = {
            way: [added(program.dump_func(b"%s%d" % (way.encode(), number))) for number in range(len(headers))]
            for way in _WAYS
        }
    json.dump(offsets, sys.stdout)


main()
