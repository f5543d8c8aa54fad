"""The page with a picture of every screen has them all, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from netconsole.tui import actions
from tools import console_pictures

PAGE = Path(__file__).parents[2] / "docs/use/screens.md"


def test_the_page_has_every_picture_and_every_pane() -> None:
    text = PAGE.read_text()
    named = re.findall(r"\(screens/(\w+)\.svg\)", text)
    assert sorted(named) == sorted(console_pictures.NAMES) == sorted(set(named))
    assert sorted(named) == sorted(path.stem for path in PAGE.with_suffix("").glob("*.svg"))
    panes = {one.call.split("'")[1] for one in actions.ACTIONS if one.id.startswith("pane.")}
    assert panes <= set(named)
