"""The documents point at what exists: every relative link, and every path of the project that docs and code name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.probes import manifest_reader

ROOT = Path(__file__).parents[2]
TEXTS = (".md", ".py", ".toml", ".c", ".h", ".sh", ".json", ".cfg")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"(?<![\w./-])((?:docs|src|tests|tools|bench|probes|profiles|recordings)/[\w./-]*\w)")
"""A path from the top of the project. Those with placeholders (`probes/<family>`) end before them."""
WIDTH = 100
CODE = re.compile(r"^```.*?^```$|^ {4,}\S.*?$", re.MULTILINE | re.DOTALL)
UNBROKEN = re.compile(r"`[^`]*`|\]\([^)]*\)")
PAGE = re.compile(r"(?<![\w./~-])docs/[\w./-]*\w")


def tracked() -> list[Path]:
    """The files of the project, without those that are only on this machine."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no git checkout")
    return [path for name in listed.stdout.decode().split("\0") if (path := ROOT / name).is_file()]


def missing_links(page: Path) -> Iterator[str]:
    for match in LINK.finditer(page.read_text()):
        target = match[1]
        if "://" not in target and not (page.parent / target).exists():
            yield target


PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]
GENERATED = ROOT / "docs/reference/kernels.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    assert list(missing_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = {match[1] for match in NAMED.finditer(page.read_text())}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize(
    "page", [one for one in PAGES if one != GENERATED], ids=lambda page: str(page.relative_to(ROOT))
)
def test_prose_fits_beside_a_diff(page: Path) -> None:
    """Tables, code and what stands in backticks or is a link cannot be wrapped."""
    prose = CODE.sub("", page.read_text()).splitlines()
    wide = [line for line in prose if len(line) > WIDTH and not line.lstrip().startswith("|")]
    assert [line for line in wide if len(UNBROKEN.sub("", line).split()) > 1] == []


def test_every_page_that_the_code_names_exists() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked()
        if path.suffix in TEXTS and path != Path(__file__)
        for match in PAGE.finditer(path.read_text(errors="replace"))
        if not (ROOT / match[0]).exists()
    }
    assert sorted(found) == []


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs/README.md"
    listed = {(index.parent / match[1]).resolve() for match in LINK.finditer(index.read_text())}
    assert {page for page in (ROOT / "docs").rglob("*.md") if page != index} <= listed


def test_the_readme_names_every_probe_except_those_of_a_ping() -> None:
    table = (ROOT / "README.md").read_text()
    shipped = {path.parent.name for path in (ROOT / "probes").glob("*/*/probe.toml") if path.parts[-3] != "ping"}
    assert [name for name in sorted(shipped) if f"`{name}`" not in table] == []


def test_the_page_about_probes_lists_all_kinds_of_labels() -> None:
    listed = re.search(r"`(symbol drop_reason [^`]*)`", (ROOT / "docs/reference/probes.md").read_text())
    assert listed is not None and set(listed[1].split()) == set(manifest_reader.SHOWN_AS)
