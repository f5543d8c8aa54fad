"""Records a made-up host of many VMs with four queues each, of which one gets stuck: to try a full console."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.base.errors import BadInput
from tests.support.tui.crowd import Crowd, record


def main() -> int:
    """Exit code 2 without a file to write to, or where there is one already."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE.ncrec")
    parser.add_argument("--vms", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=60)
    given = parser.parse_args()
    try:
        record(given.file, given.seconds, Crowd(given.vms, stuck=(given.vms * 137 // 200, 2)))
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
