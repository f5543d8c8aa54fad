"""Question `counters`: which of some counters of the kernel's protocols moves now.

`moved`: the name of the one that moves most; empty where none does. `is_moving`: else it only has, at some time.
"""

from typing import Any

from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.moving import moving
from netconsole_collector.questions.within import within


def answer(arguments: Json) -> Any:
    """``names``: as nstat(8) has them, with spaces between."""
    names = text(arguments, "names").split()
    moved = within(arguments, lambda: moving(names))
    return {"moved": moved.name, "is_moving": moved.is_now}
