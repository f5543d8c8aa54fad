"""Mutation tests of the pure cores: `make mutants` (docs/design/testing.md)."""
