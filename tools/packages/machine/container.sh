#!/bin/sh
# Boot a root file system in namespaces of its own, on this machine's kernel. Usage: container.sh ROOT SHOW SCRATCH
#
# ROOT is left as it is; SHOW is seen at /show; SCRATCH is an empty folder.
set -eu
root=$1 show=$2 scratch=$3

# A control group, so that systemd inside has all of what it sees, whatever else is mounted here.
group=$(findmnt -n -o TARGET -t cgroup2 | head -n 1)/cwdp-packages-$$
mkdir "$group"
trap 'rmdir "$group"/* "$group" 2> /dev/null || true' EXIT
sh -c 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"' sh "$group" \
	unshare --pid --fork --kill-child --mount --net --uts --ipc --cgroup -- sh -eu -c '
		root=$1 show=$2 scratch=$3
		mount --make-rprivate /
		mount -t tmpfs tmpfs "$scratch"
		mkdir "$scratch/upper" "$scratch/work" "$scratch/new"
		mount -t overlay overlay -o "lowerdir=$root,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/new"
		cd "$scratch/new"
		mount -t proc proc proc
		mount -t sysfs sysfs sys
		mount -t cgroup2 cgroup2 sys/fs/cgroup
		mount -t bpf bpf sys/fs/bpf
		mount -t tmpfs tmpfs run
		mount -t tmpfs -o mode=755 tmpfs dev
		for device in null zero full random urandom tty; do
			touch "dev/$device"
			mount --bind "/dev/$device" "dev/$device"
		done
		mkdir -p dev/pts dev/shm show
		mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
		ln -s pts/ptmx dev/ptmx
		mount --bind "$show" show
		hostname show
		pivot_root . mnt
		umount -l mnt
		exec env -i container=cwdp PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
	' sh "$root" "$show" "$scratch"
