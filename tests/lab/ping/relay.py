"""What stands for ssh: gives a command to the test run, which runs it in a machine, and passes on its input and output.

relay.py SOCKET MACHINE COMMAND
"""

import json
import os
import select
import socket
import sys

CHUNK = 65536


def main(path: str, machine: str, command: str) -> None:
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    line.sendall(json.dumps({"machine": machine, "command": command}).encode() + b"\n")
    reading = [0, line.fileno()]
    while line.fileno() in reading:
        for ready in select.select(reading, [], [])[0]:
            part = os.read(ready, CHUNK)
            if not part:
                reading.remove(ready)
                if ready == 0:
                    line.shutdown(socket.SHUT_WR)
            elif ready == 0:
                line.sendall(part)
            else:
                os.write(1, part)


if __name__ == "__main__":
    main(*sys.argv[1:])
