"""What a pane shows is what manifests say."""

from __future__ import annotations

from dataclasses import replace

from netconsole.probes.catalogue import shipped
from netconsole.probes.manifest import DRAWN, LAST, PAGES, PANES, Manifest, PlaceSpec
from netconsole.tui.panes import catalogue, drawn

SOFTNET = "softnet"


def placed(*places: PlaceSpec) -> dict[str, Manifest]:
    return {SOFTNET: replace(shipped(SOFTNET), panes=places)}


def blocks(manifests: dict[str, Manifest], pane: str, running: bool = True) -> list[list[tuple[str, str]]]:
    """Tab and block of a pane, row by row."""
    made = catalogue.panes(manifests, manifests if running else ())[pane]
    return [[(one.tab, one.block.name) for one in row] for row in made.rows]


def test_every_word_of_a_manifest_is_drawn() -> None:
    assert set(drawn.BLOCKS) == set(DRAWN)
    assert set(drawn.PAGES) == set(PAGES)
    assert set(PANES) < set(catalogue.panes({}, ()))


def test_a_probe_is_where_its_manifest_puts_it_and_nowhere_else() -> None:
    manifests = placed(PlaceSpec("drops", "Backlog", "table", "cpus"))
    assert blocks(manifests, "drops") == [
        [("Where", "drop-places")],
        [("Backlog", "softnet-cpus"), ("Balance", "balance")],
    ]
    assert blocks(manifests, "host") == blocks(manifests, "drops", running=False) == []
    assert catalogue.panes(manifests, manifests)["drops"].probes == (SOFTNET,)


def test_blocks_of_a_row_stand_side_by_side_and_others_below() -> None:
    manifests = {
        name: replace(shipped(name), panes=(PlaceSpec("ovs", name, "table", table, order=order, row=row),))
        for name, table, order, row in (
            ("softnet", "cpus", 2, 1),
            ("link_rates", "links", 1, 1),
            ("socket_groups", "sockets", LAST, None),
        )
    }
    assert [[tab for tab, _ in row] for row in blocks(manifests, "ovs")] == [
        ["link_rates", "softnet"],
        ["socket_groups"],
    ]


def test_on_the_overview_it_is_there_only_where_it_runs_unless_it_always_is() -> None:
    place = PlaceSpec("overview", "Backlog", "table", "cpus", row=9)
    for always in (False, True):
        manifests = placed(replace(place, always=always))
        [*_, last] = blocks(manifests, "overview", running=False)
        assert (last == [("Backlog", "softnet-cpus")]) is always
    [block] = catalogue.panes(placed(place), {SOFTNET})["overview"].rows[-1]
    assert block.of == (SOFTNET,), "left out while it does not measure"


def test_a_block_that_several_probes_name_is_there_once() -> None:
    place = PlaceSpec("path", "Ways", "drawn", "path-ways", order=1, row=1)
    manifests = {name: replace(shipped(name), panes=(place,)) for name in ("host_path", "local_path")}
    assert blocks(manifests, "path") == [[("Ways", "path-ways")]]
    assert catalogue.panes(manifests, manifests)["path"].probes == ("host_path", "local_path")
