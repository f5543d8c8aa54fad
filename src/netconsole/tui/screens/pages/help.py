"""The help page of the pane in front."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from netconsole.probes.manifest import Manifest
from netconsole.tui.panes.catalogue import Pane
from netconsole.tui.panes.common import help as help_pane
from netconsole.tui.scene.scene import Scene
from netconsole.tui.screens.pages.text_page import OverScreen
from netconsole.tui.widgets.painted import Line


class HelpScreen(OverScreen):
    """The keys, then what the pane measures, how, and what it cannot see."""

    def __init__(
        self,
        pane: Pane,
        manifests: Mapping[str, Manifest],
        probe: str | None,
        keymap: Mapping[str, str],
        without: Collection[str],
        missing: str,
    ) -> None:
        """``without``: ids of the actions that cannot be used in this console; ``missing``: why the pane is empty."""
        super().__init__()
        names = [name for name in pane.probes if name in manifests] if probe is None else [probe]
        self._of = pane.name, missing, [manifests[name] for name in names], keymap
        self._without = without

    def page(self, scene: Scene, width: int) -> Sequence[Line]:
        return help_pane.lines(*self._of, width, self._without)
