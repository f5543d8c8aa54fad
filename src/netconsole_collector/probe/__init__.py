"""A running probe: its configuration, its tables, its records."""
