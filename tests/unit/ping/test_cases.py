"""The files of one measured case: what each is, whose it is, and what does not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base.errors import BadInput
from netconsole.ping import breakdown, capture
from netconsole.ping.cases import MAX_FILES, case_of, read_captures, read_case, role_and_path, schema_of
from tests.support.ping import linked

NO_FILE = "names no file: write ROLE=FILE"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The captures of one ping."""
    for name, one in linked(3):
        (tmp_path / name).write_bytes(b" \n" + capture.encode(one))
    return [str(tmp_path / name) for name, _ in linked(3)]


@pytest.fixture
def made(tmp_path: Path) -> str:
    """A breakdown."""
    file = tmp_path / "made.json"
    file.write_bytes(breakdown.encode(case_of(linked(3), "a").breakdown))
    return str(file)


def test_the_captures_of_one_ping_are_a_case(files: list[str]) -> None:
    found = read_case(files, "monday")
    assert found.name == "monday" and found.breakdown.paired_packets == 3
    assert [(one.file, one.capture) for one in found.files] == [
        (file, known.capture) for file, known in zip(files, linked(3), strict=True)
    ]
    assert found.breakdown == case_of(found.files, "").breakdown


def test_a_case_without_a_name_has_that_of_its_first_file(files: list[str], made: str) -> None:
    assert read_case([f"sender-vm={files[0]}", *files[1:]]).name == "sender-vm.json"
    assert read_case(files[3:]).name == "receiver-vm.json"  # one file is enough
    assert (read_case([made]).name, read_case([made], "monday").name) == ("made.json", "monday")


def test_a_breakdown_is_a_case_by_itself(files: list[str], made: str) -> None:
    found = read_case([made])
    assert found.files == [] and found.breakdown == case_of(linked(3), "").breakdown
    for together in ([made, files[0]], [files[0], made]):
        with pytest.raises(BadInput, match=r"made\.json: schema: a breakdown is a whole case"):
            read_case(together)


def test_no_file_and_too_many_are_refused(files: list[str]) -> None:
    for count in (0, MAX_FILES + 1):
        with pytest.raises(BadInput, match=f"expected 1 to 32 files, found {count}"):
            read_case(files[:1] * count)
    with pytest.raises(BadInput, match="the same file is named twice"):
        read_case(files[:1] * MAX_FILES)
    with pytest.raises(BadInput, match="the same file is named twice"):
        read_case([files[0], f"sender-vm={files[0]}"])


def test_a_capture_that_says_whose_it_is_may_not_be_called_anothers(files: list[str]) -> None:
    with pytest.raises(BadInput, match="this capture is of sender-vm, not of host"):
        read_case([f"host={files[0]}"])
    content = Path(files[0]).read_bytes()
    for role in (None, "sender-vm"):
        ((file, found),) = read_captures(content, "a", role)
        assert (file, found.role) == ("a", "sender-vm")


def test_what_does_not_begin_as_a_document_is_read_as_a_log() -> None:
    for content in (b"", b"no log"):
        with pytest.raises(BadInput, match="no log of a known tool"):
            read_captures(content, "a.log")
    with pytest.raises(BadInput, match="not a ping capture"):
        read_captures(b" {}", "a.json")


@pytest.mark.parametrize(
    ("content", "schema"),
    [
        (b'{"schema": "x/1", "more": 1}', "x/1"),
        (b"{}", None),
        (b"", None),
        (b"{", None),
        (b"[1]", None),
        (b'{"schema": 1}', None),
        (b'{"schema": "\xff"}', None),
        (b"[" * 100_000, None),
    ],
)
def test_what_a_document_says_it_is(content: bytes, schema: str | None) -> None:
    assert schema_of(content) == schema


@pytest.mark.parametrize("role", capture.ROLES)
def test_a_role_may_stand_before_a_file(role: str) -> None:
    assert role_and_path(f"{role}=a/b=c.json") == (role, Path("a/b=c.json"))
    assert role_and_path(f"./{role}=a") == (None, Path(f"{role}=a"))
    assert role_and_path(role) == (None, Path(role))
    assert role_and_path(f"x{role}=a") == (None, Path(f"x{role}=a"))
    with pytest.raises(BadInput, match=NO_FILE):
        role_and_path(f"{role}=")
