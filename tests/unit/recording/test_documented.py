"""The limits of a recording are those of docs/use/recording.md."""

from __future__ import annotations

from netconsole.recording import player, recorder, replay_session, writer
from tests.support.documents import Stated, check, each

PAGE = "use/recording.md"


@each(
    Stated((writer.MAX_BYTES, writer.MAX_S), (256 << 20, 86_400.0), PAGE, "are 256 MB and 24 h by default"),
    Stated((writer.PARTS, writer.KEPT_PARTS), (8, 5), PAGE, "is filled to seven eighths, the oldest three eighths"),
    Stated(writer.PARTS, 8, PAGE, "A block is an eighth at most."),
    Stated((recorder.BLOCK_S, recorder.BLOCK_BYTES), (60.0, 4 << 20), PAGE, "A block is one minute, or 4 MB of"),
    Stated(recorder._NEAR, 0.25, PAGE, "samples are left out when a quarter of a minute's allowance is left"),
    Stated(player.HISTORY_S, 600.0, PAGE, "A jump loads the checkpoint from ten minutes before its target"),
    Stated(
        player.HISTORY_BYTES,
        4 << 20,
        PAGE,
        "If these ten minutes have more than 4 MB of frames",
    ),
    Stated(replay_session.SPEEDS[0], 0.25, PAGE, "changes the speed, from 0.25 to 300"),
    Stated(replay_session.SPEEDS[-1], 300.0, PAGE, "changes the speed, from 0.25 to 300"),
)
def test_a_constant_is_the_one_that_the_page_names(one: Stated) -> None:
    check(one)
