"""What the console reads itself, without BPF: Open vSwitch, its own cost."""
