"""The packages in a virtual machine of their own, Debian 12 with systemd as init."""
