"""A probe's C as one text: which headers are found, where they stand, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base import paths
from netconsole.base.errors import BadInput
from netconsole.probes import includes


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    """The source of a probe in a tree that has shared headers of its own."""
    common, directory = tmp_path / "common", tmp_path / "net" / "mine"
    common.mkdir()
    directory.mkdir(parents=True)
    (common / "one.h").write_text('#include "two.h"\nint one;\n')
    (common / "two.h").write_text("int two;\n")
    (directory / "own.h").write_text('#include "../../common/two.h"\nint own;\n')
    return directory / "probe.bpf.c"


def said(probe: Path, text: str) -> str:
    probe.write_text(text)
    with pytest.raises(BadInput) as error:
        includes.read(probe)
    (problem,) = error.value.problems
    return str(problem).replace(f"{probe}: ", "")


def test_each_header_stands_once_where_it_is_named_first(probe: Path) -> None:
    probe.write_text('/* mine */\n  #  include "../../common/one.h"  // what all have\n#include "own.h"\nint mine;\n')
    assert includes.read(probe).splitlines() == [
        "/* mine */",
        '#line 1 "one.h"',
        '#line 1 "two.h"',
        "int two;",
        "",
        '#line 2 "one.h"',
        "int one;",
        "",
        '#line 3 "probe.bpf.c"',
        '#line 1 "own.h"',
        "",  # two.h is there
        "int own;",
        "",
        '#line 4 "probe.bpf.c"',
        "int mine;",
    ]


def test_headers_that_include_each_other_end(probe: Path) -> None:
    (probe.parent / "own.h").write_text('#include "other.h"\nint own;\n')
    (probe.parent / "other.h").write_text('#include "own.h"\nint other;\n')
    probe.write_text('#include "own.h"\n')
    assert includes.read(probe).count("int own;") == 1


@pytest.mark.parametrize("include", ["../common/one.h", "../../common/one.h"])
def test_the_shared_headers_are_those_of_the_tree_in_a_family_or_not(probe: Path, include: str) -> None:
    direct = probe.parents[2] / "direct" / "probe.bpf.c"
    direct.parent.mkdir()
    for path in (probe, direct):
        path.write_text(f'#include "{include}"\n')
        assert "int one;" in includes.read(path)


def test_a_tree_without_shared_headers_has_those_of_the_program(tmp_path: Path) -> None:
    probe = tmp_path / "a" / "b" / "probe.bpf.c"
    probe.parent.mkdir(parents=True)
    probe.write_text('#include "../../common/checks.h"\n')
    assert (paths.data("probes") / "common" / "checks.h").read_text() in includes.read(probe)


@pytest.mark.parametrize(
    "name",
    [
        '"../own.h"',
        '"/etc/passwd"',
        '"../../../common/one.h"',
        '"../../common/../net/mine/own.h"',
        '"../../common/sub/one.h"',
        '"../../other/one.h"',
        '"common/one.h"',
        '"own.c"',
        '"Own.h"',
        '"own.h',
        "<linux/skbuff.h>",
        "HEADER",
        "",
        '"own.h" "own.h"',
    ],
)
def test_a_name_of_another_form_is_refused(probe: Path, name: str) -> None:
    message = said(probe, f"int x;\n#include {name}\n")
    assert message.startswith('line 2: expected #include "name.h" or "../../common/name.h"')
    assert message.endswith(f"found {name}".rstrip()) or not name


def test_a_header_that_is_not_there_is_named_with_its_line(probe: Path) -> None:
    assert said(probe, '#include "../../common/none.h"\n') == 'line 1: #include "../../common/none.h": no such file'
    assert said(probe, '#include "none.h"\n') == 'line 1: #include "none.h": no such file'


def test_a_header_of_bytes_is_refused(probe: Path) -> None:
    (probe.parent / "own.h").write_bytes(b"\xff")
    assert "not UTF-8" in said(probe, '#include "own.h"\n')
