"""Makes the JSON Schemas of the documents from their types: python -m tools.schemas docs/reference/schema"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from netconsole.compare.baseline import Baseline
from netconsole.compare.document import Comparison
from netconsole.ping.breakdown import Breakdown
from netconsole.ping.capture import PingCapture
from netconsole.recording.format import Header
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry.frames import AnyFrame

DOCUMENTS: dict[str, Any] = {
    "snapshot-1.json": Snapshot,
    "baseline-1.json": Baseline,
    "comparison-1.json": Comparison,
    "ping-capture-1.json": PingCapture,
    "ping-breakdown-1.json": Breakdown,
    "recording-header-1.json": Header,
    "frame-1.json": AnyFrame,
}
"""Type by file; frames are a union of types."""


def text(document: Any) -> str:
    """The JSON Schema (2020-12) of a document, as it is committed."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(document)}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for name, document in DOCUMENTS.items():
        Path(sys.argv[1], name).write_text(text(document))
