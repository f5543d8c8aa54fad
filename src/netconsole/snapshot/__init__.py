"""The document of a measurement (docs/use/snapshot.md)."""
