"""Kernel addresses have the name of the function that holds them, in little memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.names.symbols import Symbols


@pytest.mark.parametrize(
    ("address", "function", "frame"),
    [
        (0xFFFFFFFF81000110, "second", "second+0x0"),
        (0xFFFFFFFF81000150, "second", "second+0x40"),
        (0xFFFFFFFF81000190, "second", "second+0x80"),
        (0xFFFFFFFF81000204, "third", "third+0x4"),
        (0xFFFFFFFFC0001010, "tun_net_xmit", "tun_net_xmit+0x10"),
        (0xFFFFFFFFC0002FFF, "late", "late+0xfff"),
        (0xFFFFFFFFC0005001, "vhost_poll", "vhost_poll+0x1"),
        (0x1000, "0x1000", "0x1000"),
        (0xFFFFFFFFF0000000, "0xfffffffff0000000", "0xfffffffff0000000"),
    ],
)
def test_addresses_have_the_function_that_holds_them(symbols: Symbols, address: int, function: str, frame: str) -> None:
    assert symbols.function(address) == function
    assert symbols.frame(address) == frame


def test_hidden_addresses_are_shown_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text("0000000000000000 T first\n0000000000000000 T second\n")
    assert Symbols(str(path)).function(0xFFFFFFFF81000000) == "0xffffffff81000000"
    assert Symbols(str(tmp_path / "missing")).function(7) == "0x7"


def test_the_running_kernel_s_symbols_take_little_memory() -> None:
    lines = [line.split() for line in Path("/proc/kallsyms").read_text().splitlines()]
    functions = {int(line[0], 16): line[2] for line in lines if line[1] in "tT" and not line[2].startswith("__pfx_")}
    if len(functions) < 1000:
        pytest.skip("cannot run here: kallsyms hides addresses")
    found = Symbols()
    by_address: dict[int, set[str]] = {}
    for line in lines:
        by_address.setdefault(int(line[0], 16), set()).add(line[2])
    for address in list(functions)[::97]:
        assert found.function(address) in by_address[address]
    packed = sum(len(block) for run in found._runs for block in run.blocks)
    assert packed + 8 * sum(len(run.addresses) for run in found._runs) < 4_000_000


def test_a_module_that_was_loaded_later_is_not_taken_for_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kallsyms"
    path.write_text("ffffffff81000000 T start\nffffffffc0100000 t first\t[one]\nffffffffc0100800 t last\t[one]\n")
    symbols = Symbols(str(path))
    assert symbols.function(0xFFFFFFFFC0100810) == "last"
    with path.open("a") as file:
        file.write("ffffffffc0103000 t nft_do_chain\t[nf_tables]\n")
    assert symbols.function(0xFFFFFFFFC0103010) == "last", "kallsyms has just been read"
    monkeypatch.setattr("netconsole_collector.names.symbols._REREAD_AFTER_S", 0.0)
    assert symbols.function(0xFFFFFFFFC0103010) == "nft_do_chain"
    assert symbols.frame(0xFFFFFFFFC0100810) == "last+0x10"


def test_a_module_that_begins_on_the_next_page_is_known_as_soon_as_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since 6.13 (execmem) there is no free page between two modules."""
    path = tmp_path / "kallsyms"
    path.write_text("ffffffffc0100000 t first\t[one]\nffffffffc0100f00 t last\t[one]\n")
    symbols = Symbols(str(path))
    assert symbols.function(0xFFFFFFFFC0100FF0) == "last"
    with path.open("a") as file:
        file.write("ffffffffc0101000 t nft_do_chain\t[nf_tables]\n")
    monkeypatch.setattr("netconsole_collector.names.symbols.modules", lambda: -1)
    assert symbols.function(0xFFFFFFFFC0101010) == "nft_do_chain"
