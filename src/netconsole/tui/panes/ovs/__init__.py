"""The pane of Open vSwitch."""
