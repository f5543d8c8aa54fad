"""What a host tells when it is asked: files, netlink, control sockets. The console uses it here, and over a line."""
