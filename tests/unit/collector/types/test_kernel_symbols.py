"""A digest of the kernel's symbols is the same at each boot of one build, and another one for another build."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.types import kernel_symbols

SYMBOLS = [("_stext", 0x1000), ("ip_rcv", 0x1040), ("tun_get", 0x1080), ("_etext", 0x2000)]


def listed(path: Path, symbols: list[tuple[str, int]], *more: str) -> str:
    """As /proc/kallsyms has them."""
    path.write_text("\n".join([*(f"{address:016x} T {name}" for name, address in symbols), *more]) + "\n")
    return kernel_symbols.here(str(path))


def test_it_does_not_depend_on_where_the_kernel_lies_or_on_what_was_loaded(tmp_path: Path) -> None:
    expected = kernel_symbols.digest(SYMBOLS)
    moved = [(name, address + 0x1F000000) for name, address in reversed(SYMBOLS)]
    others = ["0000000000001050 T vhost_init\t[vhost]", "0000000000001050 t local", "0000000000003000 T after"]
    assert len(expected) == 64
    assert kernel_symbols.digest(moved) == expected
    assert listed(tmp_path / "kallsyms", moved, *others) == expected


def test_names_that_some_kernels_do_not_list_do_not_count(tmp_path: Path) -> None:
    left_out = ["__efistub_x", "__pi_memcpy", "__crc_x", "x.cold", "call_from_arm", "$x"]
    symbols = [*SYMBOLS, *((name, 0x1100) for name in left_out)]
    assert kernel_symbols.digest(symbols) == listed(tmp_path / "kallsyms", symbols) == kernel_symbols.digest(SYMBOLS)


@pytest.mark.parametrize(
    "other", [[("ip_rcv", 0x1044)], [("ip_rcv_core", 0x1040)], [("ip_rcv", 0x1040), ("more", 0x1060)], []]
)
def test_another_build_has_another_one(other: list[tuple[str, int]]) -> None:
    symbols = [one for one in SYMBOLS if one[0] != "ip_rcv"] + other
    assert kernel_symbols.digest(symbols) != kernel_symbols.digest(SYMBOLS)


def test_it_is_empty_where_the_symbols_do_not_tell(tmp_path: Path) -> None:
    assert listed(tmp_path / "kallsyms", [(name, 0) for name, _ in SYMBOLS]) == ""
    assert kernel_symbols.here(str(tmp_path / "none")) == ""
    assert kernel_symbols.digest([]) == kernel_symbols.digest([("ip_rcv", 0x1040)]) == ""
