"""The kernels of the lab as parameters of tests. One that is `long` keeps its test out of `make test`."""

from __future__ import annotations

import pytest

from tests.lab.kernels.fetch import kernels

USUAL = [kernel.name for kernel in kernels() if not kernel.long]
EACH = [pytest.param(kernel.name, marks=[pytest.mark.long] if kernel.long else []) for kernel in kernels()]
