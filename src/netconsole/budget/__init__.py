"""The budget for the cost of measuring: forecast, measured and kept (docs/design/governor.md)."""
