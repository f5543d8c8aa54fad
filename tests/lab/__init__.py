"""The lab: a hypervisor with its virtual machines, booted under QEMU without hardware help (docs/design/lab.md)."""
