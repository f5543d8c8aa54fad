"""Snapshots: makes, reads and redacts the document of a measurement (docs/use/snapshot.md)."""
