"""Reads BPF maps and writes frames; system Python 3.6 or later, standard library only."""

VERSION = "0.1.0"
