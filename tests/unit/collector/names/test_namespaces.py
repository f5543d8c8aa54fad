"""Names of network namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.names.namespaces import KEPT_S, Namespaces


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


def test_a_name_that_is_gone_is_kept_for_a_moment_and_not_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    named = tmp_path / "blue"
    named.touch()
    inode = named.stat().st_ino
    found = Namespaces(str(tmp_path))
    assert found.name(inode) == "blue"
    changes = found.changes
    named.unlink()
    found.refresh()
    now_s[0] += KEPT_S - 0.1
    found.refresh()
    assert (found.name(inode), found.changes) == ("blue", changes), "what it counted last is still its"
    now_s[0] += 0.1
    found.refresh()
    assert (found.name(inode), found.changes) == (str(inode), changes + 1)


def test_a_new_namespace_with_the_inode_of_one_that_is_gone_has_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "blue").touch()
    inode = (tmp_path / "blue").stat().st_ino
    found = Namespaces(str(tmp_path))
    assert found.name(inode) == "blue"
    (tmp_path / "blue").rename(tmp_path.parent / "kept")
    found.refresh()
    (tmp_path.parent / "kept").rename(tmp_path / "green")
    found.refresh()
    assert found.name(inode) == "green"
