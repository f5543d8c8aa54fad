"""A made-up /proc/kallsyms, for names of addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.names.symbols import Symbols

KALLSYMS = """\
ffffffff81000000 T _stext
ffffffff81000000 T first
ffffffff81000100 t __pfx_second
ffffffff81000110 t second
ffffffff81000180 D some_data
ffffffff81000200 W third
ffffffffc0002000 t late\t[tun]
ffffffffc0001000 t tun_net_xmit\t[tun]
ffffffffc0005000 t vhost_poll\t[vhost]
"""


@pytest.fixture
def symbols(tmp_path: Path) -> Symbols:
    path = tmp_path / "kallsyms"
    path.write_text(KALLSYMS)
    return Symbols(str(path))
