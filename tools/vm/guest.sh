#!/bin/sh
# Inside the virtual machine: the file systems, then a command in the checkout. Usage: guest.sh CACHED CHECKOUT COMMAND...
set -eu
cached=$1 checkout=$2
shift 2

# The root file system asks the host about every file every time. What does not change meanwhile is seen through a
# second export of the same tree, which may be cached: Python starts in a third of the time.
mkdir /tmp/cached
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 "$cached" /tmp/cached
for folder in "$checkout/.venv" "$checkout/cwdp" "$checkout/tools" "$checkout/manager" /usr/lib/python3 /usr/lib/python3.11; do
	folder=$(readlink -f "$folder")
	mount --bind "/tmp/cached$folder" "$folder"
done
for system in tracefs:/sys/kernel/tracing bpf:/sys/fs/bpf; do
	mountpoint -q "${system#*:}" || mount -t "${system%%:*}" none "${system#*:}"
done
cd "$checkout"
exec "$@"
