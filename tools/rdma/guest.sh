#!/bin/sh
# Inside the virtual machine: the modules, the file systems, then the scenarios. Usage: guest.sh CACHED CHECKOUT FILE [BEGINNING]
set -eu
cached=$1 checkout=$2 results=$3
shift 3
here=$(dirname "$0")
"$here/provision.sh" modules

# The way to the manager, which runs outside (outside.py).
modprobe virtio_net
nic=$(ip -o link | sed -n 's/^[0-9]*: \([^:@]*\).*52:54:00:63:77:64.*/\1/p')
ip addr add 192.168.99.15/24 dev "$nic"
ip link set "$nic" up

# The root file system asks the host about every file every time. What does not change meanwhile is seen through a
# second export of the same tree, which may be cached: Python starts in a third of the time.
mkdir /tmp/cached
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 "$cached" /tmp/cached
for folder in "$checkout/.venv" "$checkout/cwdp" "$checkout/tools" "$checkout/manager" /usr/lib/python3 /usr/lib/python3.11; do
	mount --bind "/tmp/cached$folder" "$folder"
done
for system in tracefs:/sys/kernel/tracing bpf:/sys/fs/bpf; do
	mountpoint -q "${system#*:}" || mount -t "${system%%:*}" none "${system#*:}"
done
cd "$checkout"
exec .venv/bin/python -u -m tools.rdma.guest "$results" "$@"
