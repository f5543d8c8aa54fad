"""Generated examples: the same in every run, and judged by what comes out, not by how long a busy machine took."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
