"""The labels that one label brings: a drop reason its class and provenance, a tap its virtual machine.

The console reads this too: it has to know the labels of a table before the first row comes.
"""

from typing import Dict, Tuple

BROUGHT: Dict[str, Tuple[str, ...]] = {"drop_reason": ("class", "provenance"), "tap": ("vm",)}
"""By how the label is shown, which is `as` in a manifest."""
