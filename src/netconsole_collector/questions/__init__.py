"""Bounded questions about this host, each answered once with one document (docs/design/collector.md#questions)."""
