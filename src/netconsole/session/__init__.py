"""A measurement that readers look at, and the live one."""
