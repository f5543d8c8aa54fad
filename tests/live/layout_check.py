"""Run by the interpreter that has bcc: which offsets does the compiled program really add to reach each member?

Standard input: {"tree": {path: text}, "members": [[struct, member], …]}; standard output: [offset, …].
offsetof() and static asserts are no use here: clang folds them early, with the host's layout, and they look right when
the code is wrong.
"""

import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, sys.argv[1])

from netconsole_collector import header_tree

_ADD_CONSTANT = 0x07
"""BPF_ALU64 | BPF_ADD | BPF_K."""

_FUNCTION = """
int read{number}(void *ctx)
{{
    {record} *object = *(void **)ctx;
    char value = 0;
    bpf_probe_read(&value, 1, &object->{member});
    return value;
}}
"""


def added(code: bytes) -> int:
    """The sum of the positive constants that a function adds: the negative ones are places on its stack."""
    total = 0
    for at in range(0, len(code), 8):
        constant = struct.unpack_from("=i", code, at + 4)[0]
        if code[at] == _ADD_CONSTANT and constant > 0:
            total += constant
    return total


def main() -> None:
    from bcc import BPF

    request = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as directory:
        header_tree.write(directory, request["tree"])
        os.environ["BCC_KERNEL_SOURCE"] = directory
        text = "".join(
            _FUNCTION.format(number=number, record=record, member=member)
            for number, (record, member) in enumerate(request["members"])
        )
        program = BPF(text=text.encode())
        offsets = [added(program.dump_func(b"read%d" % number)) for number in range(len(request["members"]))]
    json.dump(offsets, sys.stdout)


main()
