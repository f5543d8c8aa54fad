"""Where the time of a ping between two VMs goes: captures, the breakdown into segments, comparison, import of logs."""
