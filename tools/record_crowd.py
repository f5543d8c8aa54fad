"""Records a made-up host of 200 VMs with four queues each, of which one gets stuck: to try the console on a full host.

usage: python tools/record_crowd.py FILE.ncrec [VMS] [SECONDS]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.base.errors import BadInput
from tests.support.tui.crowd import Crowd, record


def main() -> int:
    """Exit code 2 without a file to write to, or where there is one already."""
    if not 2 <= len(sys.argv) <= 4 or not all(word.isdecimal() for word in sys.argv[2:]):
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    vms, seconds = [int(word) for word in sys.argv[2:]] + [200, 60][len(sys.argv) - 2 :]
    try:
        record(Path(sys.argv[1]), seconds, Crowd(vms, stuck=(vms * 137 // 200, 2)))
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
