"""How long a probe was not attached: the time in which it rested (sampler.py). Times are CLOCK_MONOTONIC in ns."""

from typing import Optional


class Unseen:
    """Adds up the rests of one probe."""

    def __init__(self) -> None:
        self.total_ns = 0
        self._since_ns: Optional[int] = None
        self._taken_ns = 0

    def begin(self, now_ns: int) -> None:
        """The probe rests from now on."""
        if self._since_ns is None:
            self._since_ns = now_ns

    def end(self, now_ns: int) -> None:
        """It is attached again."""
        if self._since_ns is not None:
            self.total_ns += max(0, now_ns - self._since_ns)
            self._since_ns = None

    def take(self, now_ns: int) -> int:
        """How long it has rested since the last call."""
        if self._since_ns is not None:
            self.end(now_ns)
            self.begin(now_ns)
        taken, self._taken_ns = self.total_ns - self._taken_ns, self.total_ns
        return taken
