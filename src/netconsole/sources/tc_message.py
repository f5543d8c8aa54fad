"""The part of pyroute2 that decodes messages of tc, without the rest: that takes 15 MB, and 0.3 s of CPU to import."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

_PACKAGE = "pyroute2"


def _tcmsg() -> Any:
    """Its package imports all of its modules. In the place of the package stands an empty one meanwhile."""
    found = PathFinder.find_spec(_PACKAGE) if _PACKAGE not in sys.modules else None
    if found is not None and found.submodule_search_locations is not None:
        stand_in = ModuleType(_PACKAGE)
        stand_in.__spec__ = found
        stand_in.__path__ = list(found.submodule_search_locations)
        sys.modules[_PACKAGE] = stand_in
    try:
        from pyroute2.netlink.rtnl.tcmsg import tcmsg

        return tcmsg
    finally:
        if found is not None:
            del sys.modules[_PACKAGE]


tcmsg = _tcmsg()
