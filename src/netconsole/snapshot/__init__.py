"""The document of a measurement (docs/snapshot.md)."""
