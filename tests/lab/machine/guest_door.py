"""Runs in a guest with Python: a door for programs, as sshd is one. Its argument is the port of TCP to listen on.

A connection's first line is a shell command. The rest of it is the command's standard input and output. The end of the
connection ends the input, and the end of the command ends the connection.
"""

import os
import signal
import socket
import sys


def main(port: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    door = socket.create_server(("", port))
    while True:
        visitor, _ = door.accept()
        if os.fork() == 0:
            let_in(visitor)
        visitor.close()


def let_in(visitor: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = b""
    while not command.endswith(b"\n"):
        part = visitor.recv(1)
        if not part:
            os._exit(1)
        command += part
    for descriptor in (0, 1):
        os.dup2(visitor.fileno(), descriptor)
    os.execv("/bin/sh", ["sh", "-c", command.decode()])


if __name__ == "__main__":
    main(int(sys.argv[1]))
