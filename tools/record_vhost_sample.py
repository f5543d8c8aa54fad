"""Records the shipped sample "vhost" in the lab (docs/design/lab.md): a guest on vhost-net, its traffic, two faults.

usage: python tools/record_vhost_sample.py FILE.ncrec       (needs what the lab needs; takes a few minutes)
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.lab.kernels.compiled import bring, shipped
from tests.lab.kernels.fetch import kernels
from tests.lab.network.testbed import Testbed, boot
from tests.lab.network.traffic import flood, frozen, ping, worker_on_a_busy_cpu
from tests.lab.pytest_inside import console_command

NOTE = "a guest on vhost-net: pings and datagrams, then its worker waits for a busy CPU, then it is stopped in a flood"
PROBES = ("vhost_queues", "tun_queues", "tx_kick_path", "irq_path", "kernel_drops", "softirq_health")
SOURCES = ("link_rates", "softnet")
# An emulated machine is some ten times slower than a real one, and so is what watches it.
PROFILE = """[profile]
name = "vhost"
description = "The lab's guest."
inherits = "vhost"
[budget]
kernel_cpu_pct = 100.0
ns_per_packet = 100000
user_cpu_pct = 200.0
action = "warn"
"""
FOLDER = "/run/lab"
RECORDING, WANTED = f"{FOLDER}/vhost.ncrec", f"{FOLDER}/vhost.toml"
BEGIN_LIMIT_S, END_LIMIT_S = 240.0, 60.0
CALM_S = 8.0
PINGS, PING_EVERY_S = 100, 0.1
DATAGRAMS_PER_S, CLOSED_PORT = 50, 9
FLOOD = 4000


def record(bed: Testbed) -> bytes:
    """The recording, as the console's own command has written it."""
    host, guest = bed.hypervisor, bed.guests[0]
    host.write_file(WANTED, PROFILE.encode())
    bring(host, shipped(PROBES).values())  # else a sixth of it shows how long a compile takes there
    chosen = [word for probe in (*PROBES, *SOURCES) for word in ("--probe", probe)]
    command = console_command("record", "-o", RECORDING, "--profile", WANTED, *chosen, "--note", NOTE, "--force")
    with host.start("sh", "-c", 'exec "$@" 2>&1', "sh", *command) as recorder:
        recorder.wait_for(b"recording to", BEGIN_LIMIT_S)
        time.sleep(CALM_S)
        guest.keep_sending_udp(DATAGRAMS_PER_S, bed.bridge, port=CLOSED_PORT)
        ping(host, guest, PINGS, interval_s=PING_EVERY_S)
        with worker_on_a_busy_cpu(host, guest):
            ping(host, guest, PINGS, interval_s=PING_EVERY_S)
        time.sleep(CALM_S)
        with frozen(host, guest):
            flood(host, guest.card.at.ip, FLOOD)
            time.sleep(CALM_S)
        time.sleep(CALM_S)
        recorder.signal(signal.SIGINT)
        result = recorder.wait(END_LIMIT_S)
    print(result.text, file=sys.stderr)
    return host.read_file(RECORDING)


def main() -> int:
    """Exit code 2 without a file to write to, or where there is one already."""
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        print(f"{(__doc__ or '').strip()}\nFILE.ncrec must not exist.", file=sys.stderr)
        return 2
    with boot(kernels()[0], guests=1) as bed:
        content = record(bed)
    Path(sys.argv[1]).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
