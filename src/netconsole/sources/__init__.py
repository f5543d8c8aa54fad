"""What the console reads itself, without BPF: interfaces, protocols, Open vSwitch, its own cost."""
