"""Coverage-guided fuzzing of the readers, a minute each: `make fuzz`, `make fuzz ARGS='SECONDS READER…'`.

What breaks a reader (an exception other than a refusal, 10 s, 400 MB) stays in .cache/fuzz/READER as crash-…, and is
tried first the next time, as is everything that reached new code. Ends with 1 when something broke one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CACHE = Path(".cache/fuzz")
SECONDS = 60
LIMITS = ("-timeout=10", "-rss_limit_mb=400", "-max_len=65536")
_STATISTIC = re.compile(r"stat::(number_of_executed_units|peak_rss_mb):\s+(\d+)")


def fuzz(reader: str, arguments: list[str]) -> None:
    """One reader, in a process of its own, until it breaks or the time is over."""
    import atheris

    with atheris.instrument_imports(include=["netconsole"]):
        from tests.fuzz.readers import READERS

    read, files = READERS[reader], CACHE / "files"
    files.mkdir(parents=True, exist_ok=True)
    atheris.Setup([sys.argv[0], *arguments], lambda content: read(content, files))
    atheris.Fuzz()


def main(seconds: int, chosen: list[str]) -> int:
    """Fuzz each reader; one line each."""
    from tests.fuzz.readers import READERS, seeds

    broken = 0
    for reader in chosen or READERS:
        folder = CACHE / reader
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds(reader)):
            (folder / f"seed-{number}").write_bytes(seed)
        options = [str(folder), f"-artifact_prefix={folder}/", f"-max_total_time={seconds}", "-print_final_stats=1"]
        command = [sys.executable, "-m", "tests.fuzz", "--reader", reader, *options, *LIMITS]
        done = subprocess.run(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, errors="replace")
        found = dict(_STATISTIC.findall(done.stdout))
        runs, peak_mb = found.get("number_of_executed_units", "?"), found.get("peak_rss_mb", "?")
        print(f"{reader:10} {runs} inputs in {seconds} s, peak {peak_mb} MB: {'BROKEN' if done.returncode else 'ok'}")
        if done.returncode:
            broken += 1
            print(done.stdout[-4000:])
    return 1 if broken else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reader"]:
        fuzz(sys.argv[2], sys.argv[3:])
    else:
        words = sys.argv[1:]
        sys.exit(main(int(words[0]) if words else SECONDS, words[1:]))
