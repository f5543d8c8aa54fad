"""The collector: reads BPF maps and writes frames. System Python 3.6 or later, standard library only."""

VERSION = "0.1.0"
