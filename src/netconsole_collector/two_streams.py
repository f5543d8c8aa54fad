"""How one program on a far host serves two over one line: the collector, and what sources ask.

Lines come in. One that begins with ASK is a question (primitives/server.py). START starts the collector, END ends its
input, and every other line is the collector's. Pieces go out: a head that tells the stream and the length, and bytes.
"""

import struct

FRAMES, ANSWERS = 1, 2
"""The streams. A piece of FRAMES without bytes is its end."""
PIECE = struct.Struct("<BI")
MAX_PIECE_BYTES = 16 << 10
"""So that a long answer does not hold up the frames."""
ASK, START, END = b"?", b"+", b"."
