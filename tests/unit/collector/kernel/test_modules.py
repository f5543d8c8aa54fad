"""Where the functions of a module are, from a list as /proc/kallsyms has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.kernel import modules

KALLSYMS = """ffffffff81000000 T _text
ffffffffc0100000 t do_output\t[openvswitch]
ffffffffc0200000 d ovs_internal_vport_ops\t[openvswitch]
ffffffffc0100f00 T ovs_vport_send\t[openvswitch]
ffffffffc0101000 t nf_conntrack_in\t[nf_conntrack]
ffffffffc0090000 t vxlan_xmit\t[vxlan]
"""


def text_of(tmp_path: Path, listed: str, name: str = "openvswitch") -> tuple[int, int]:
    path = tmp_path / "kallsyms"
    path.write_text(listed)
    return modules.text_of(name, str(path))


def test_the_last_function_ends_where_that_of_another_module_begins(tmp_path: Path) -> None:
    assert text_of(tmp_path, KALLSYMS) == (0xFFFFFFFFC0100000, 0xFFFFFFFFC0101000)
    assert text_of(tmp_path, KALLSYMS, "vxlan") == (0xFFFFFFFFC0090000, 0xFFFFFFFFC0100000)


def test_behind_the_last_function_of_all_is_room_for_one(tmp_path: Path) -> None:
    assert text_of(tmp_path, KALLSYMS, "nf-conntrack") == (0xFFFFFFFFC0101000, 0xFFFFFFFFC0101000 + (1 << 20))


def test_what_cannot_be_known_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"kernel\.kptr_restrict hides where the functions of openvswitch are"):
        text_of(tmp_path, "0000000000000000 t do_output\t[openvswitch]\n")
    with pytest.raises(ValueError, match="bridge is built into this kernel"):
        text_of(tmp_path, KALLSYMS, "bridge")
