#!/bin/sh
# Inside the virtual machine: the modules, the way out, then the scenarios. Usage: guest.sh FILE [BEGINNING]
set -eu
tools/rdma/provision.sh modules

# The way to the manager, which runs outside (outside.py).
modprobe virtio_net
nic=$(ip -o link | sed -n 's/^[0-9]*: \([^:@]*\).*52:54:00:63:77:64.*/\1/p')
ip addr add 192.168.99.15/24 dev "$nic"
ip link set "$nic" up

exec .venv/bin/python -u -m tools.rdma.guest "$@"
