"""The errors of the lab. Each message is one sentence."""


class LabError(Exception):
    """The lab misbehaved; the message carries the last lines of the console where there is one."""


class LabUnavailable(LabError):
    """The lab cannot run on this machine (a package or program is missing); the message says what would help."""


class CommandTimeout(LabError):
    """A command inside the lab was cut off at its limit."""


class MachineDied(LabError):
    """The machine is gone, does not answer, or was cut off at its limit."""
