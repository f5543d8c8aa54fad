"""Names of network namespaces."""

from __future__ import annotations

from pathlib import Path

from netconsole_collector.names.namespaces import Namespaces


def test_a_namespace_is_called_what_it_is_called_now(tmp_path: Path) -> None:
    """The kernel gives the inode of one that is gone to the next."""
    named = tmp_path / "blue"
    named.touch()
    inode = named.stat().st_ino
    found = Namespaces(str(tmp_path))
    assert found.name(inode) == "blue"
    changes = found.changes
    named.rename(tmp_path / "green")
    found.refresh()
    assert (found.name(inode), found.changes) == ("green", changes + 1)
    (tmp_path / "green").unlink()
    found.refresh()
    assert (found.name(inode), found.changes) == (str(inode), changes + 2)
