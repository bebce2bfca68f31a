#!/usr/bin/env bash
# What RDMA over Soft-RoCE needs, step by step; used by `make test-rdma` and by vagrant/Vagrantfile.
#
#   provision.sh programs       the verbs programs, pyverbs and what sets devices up (Debian packages)
#   provision.sh vm FOLDER      QEMU, and Debian's stock kernel unpacked in FOLDER, where it is kept
#   provision.sh modules        load what Soft-RoCE and the lab need; in the machine itself
#   provision.sh device IFNAME  a Soft-RoCE device on an interface; in the machine itself
set -euo pipefail

install_packages() {
	local missing
	missing=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2> /dev/null | awk '$1 == "installed" {print $2}' \
		| sort | comm -13 - <(printf '%s\n' "$@" | sort))
	[ -n "$missing" ] || return 0
	echo "installing Debian packages:" $missing
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing > /dev/null
}

stock_kernel() {
	apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" {print $2}'
}

unpack_kernel() {
	local folder=$1 package
	if compgen -G "$folder/boot/vmlinuz-*" > /dev/null; then
		return 0
	fi
	package=$(stock_kernel)
	echo "unpacking $package"
	rm -rf "$folder.new"
	mkdir -p "$folder.new/download"
	(cd "$folder.new/download" && apt-get download -qq -o APT::Sandbox::User=root "$package")
	dpkg -x "$folder.new"/download/*.deb "$folder.new"
	rm -rf "$folder.new/download"
	mv -T "$folder.new" "$folder"
}

case ${1-} in
programs)
	install_packages ibverbs-utils iproute2 kmod perftest python3-pyverbs rdma-core
	;;
vm)
	install_packages busybox-static qemu-system-x86
	unpack_kernel "${2:?the folder of the kernel}"
	;;
modules)
	modprobe -a rdma_rxe veth sch_tbf sch_fq cls_bpf cls_flower act_pedit
	;;
device)
	modprobe rdma_rxe
	rdma link show "rxe-${2:?an interface}/1" > /dev/null 2>&1 || rdma link add "rxe-$2" type rxe netdev "$2"
	;;
*)
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
