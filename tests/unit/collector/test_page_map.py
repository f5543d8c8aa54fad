"""Where memory and its struct pages are mapped: from a list of the kernel's symbols, or not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.kernel.page_map import addresses

LIST = """\
ffffffff9a000000 T _stext
ffffffff9b0a0010 D page_offset_base
ffffffff9b0a0008 D vmalloc_base
ffffffff9b0a0018 D vmemmap_base
ffffffffc0001000 t page_offset_base_of\t[other]
"""


def test_both_variables_are_found(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text(LIST)
    assert addresses(str(path)) == (0xFFFFFFFF9B0A0010, 0xFFFFFFFF9B0A0018)


@pytest.mark.parametrize(
    "text",
    ["", LIST.replace("vmemmap_base", "vmemmap"), LIST.replace("ffffffff9b0a0010", "0" * 16)],
    ids=["another machine", "one is missing", "hidden"],
)
def test_one_alone_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kallsyms"
    path.write_text(text)
    assert addresses(str(path)) == (0, 0)
    assert addresses(str(tmp_path / "absent")) == (0, 0)
