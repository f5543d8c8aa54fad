"""The registry of actions, and the file that gives them other keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base.errors import BadInput
from netconsole.tui import actions


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    return path


def test_no_file_means_the_keys_as_they_are(tmp_path: Path) -> None:
    assert actions.load_keys(tmp_path / "keys.toml") == {}


def test_it_is_looked_for_in_the_configuration_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "config" / "netconsole" / "keys.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[keys]\npause = "f9"\n')
    assert actions.load_keys() == {"pause": "f9"}


def test_several_keys_and_ids_with_a_dot(tmp_path: Path) -> None:
    path = write(tmp_path, '[keys]\npause = "f9, f10"\n"table.reverse" = "R"\npane.1 = "f2"\n')
    assert actions.load_keys(path) == {"pause": "f9,f10", "table.reverse": "R", "pane.1": "f2"}


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, '[keys]\npauze = "x"\nfilter = 3\nquit = "p"\n')
    with pytest.raises(BadInput) as caught:
        actions.load_keys(path)
    told = str(caught.value)
    assert f"{path}: keys.pauze: unknown action" in told and "pause" in told
    assert 'keys.filter: expected a key such as "p"' in told
    assert "'p' already belongs to 'pause'" in told


def test_a_pane_is_meant_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r'keys.pane.drop: unknown action; did you mean "pane.4" \(Drops\)\?'):
        actions.load_keys(write(tmp_path, '[keys]\n"pane.drop" = "x"\n'))


@pytest.mark.parametrize("text", ["[kees]\n", "keys = 3\n", "[keys]\n[other]\n", "\x00", "[keys"])
def test_anything_else_is_refused_with_the_file(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(BadInput) as caught:
        actions.load_keys(path)
    assert str(path) in str(caught.value)


def test_a_megabyte_of_garbage_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_bytes(bytes(range(256)) * 4096)
    with pytest.raises(BadInput):
        actions.load_keys(path)


def test_the_shipped_keys_do_not_clash() -> None:
    assert list(actions._clashes({})) == []


def test_every_action_can_be_remapped_and_says_what_it_does() -> None:
    ids = [action.id for action in actions.ACTIONS]
    assert len(ids) == len(set(ids))
    for scope in ("app", "main", "table", "over"):
        for binding in actions.bindings(scope):
            assert binding.id in ids
            assert actions.get(binding.id or "").help


def test_the_manual_names_every_action() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "reference" / "keys.md").read_text()
    missing = [action.id for action in actions.ACTIONS if f"`{action.id}`" not in manual]
    assert missing == []


def test_keys_are_written_as_people_write_them() -> None:
    assert actions.written(actions.get("quit"), {}) == "q, Ctrl-C"
    assert actions.written(actions.get("quit"), {"quit": "f10"}) == "F10"
