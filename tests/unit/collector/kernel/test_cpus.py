"""A machine may leave out numbers of CPUs: how many there are, and how far their numbers go, are two things."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.kernel import cpus


@pytest.mark.parametrize(
    ("text", "numbers", "length"), [("0", [0], 1), ("0-3", [0, 1, 2, 3], 4), ("0-1,8-9", [0, 1, 8, 9], 10)]
)
def test_a_value_has_a_slot_for_each_cpu_that_there_is_and_an_array_for_each_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, numbers: list[int], length: int
) -> None:
    (tmp_path / "possible").write_text(f"{text}\n")
    monkeypatch.setattr(cpus, "_POSSIBLE", str(tmp_path / "possible"))
    assert (cpus.possible_cpus(), cpus.nr_cpu_ids()) == (numbers, length)


@pytest.mark.parametrize(
    ("said", "online"),
    [
        ("0-2,5\n", [0, 1, 2, 5]),
        ("0", [0]),
        (f"0-{cpus.MAX_CPUS}", []),
        ("0-99999999999", []),
        ("-5", []),
        ("0,0,0", [0]),
        ("x", []),
        ("", []),
    ],
)
def test_the_cpus_of_a_list_are_those_that_linux_can_have(said: str, online: list[int]) -> None:
    assert cpus.numbers(said) == online
