"""The names of this host: its kernel functions, processes, VMs and network namespaces. All probes share them."""

from typing import Optional

from netconsole_collector.names.namespaces import Namespaces
from netconsole_collector.names.processes import Processes
from netconsole_collector.names.symbols import Symbols
from netconsole_collector.names.vms import Vms


class Lookups:
    """The look-ups of one collector. Each of their caches is bounded."""

    def __init__(self, symbols: Optional[Symbols] = None, vms: Optional[Vms] = None) -> None:
        self.symbols = symbols or Symbols()
        self.vms = vms or Vms()
        self.processes = Processes()
        self.namespaces = Namespaces()
