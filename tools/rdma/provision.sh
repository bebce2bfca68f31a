#!/usr/bin/env bash
# What RDMA over Soft-RoCE needs, step by step; used by `make test-rdma` and by vagrant/Vagrantfile.
#
#   provision.sh programs       the verbs programs, pyverbs and what sets devices up (Debian packages)
#   provision.sh vm FOLDER [PACKAGE]
#                               QEMU, and Debian's stock kernel, or that of a meta-package, unpacked in FOLDER, where
#                               it is kept
#   provision.sh modules        load what Soft-RoCE and the lab need; in the machine itself
#   provision.sh device IFNAME  a Soft-RoCE device on an interface; in the machine itself
#   provision.sh leaf IFNAME NUMBER PEER...
#                               a NIC `roce0` below a leaf switch of its own, joined with those of the peers by four
#                               spines (VXLAN over IFNAME); a machine's NUMBER is the last part of its address
set -euo pipefail

readonly SPINES="1 2 3 4" VNI=4700 MTU=1450
CHECKOUT=$(dirname "$0")/../..
PORT_OBJECT=$CHECKOUT/build/bpf/lab_port.bpf.o

kernel_of() {
	apt-cache depends "$1" | awk '$1 == "Depends:" {print $2}'
}

unpack_kernel() {
	local folder=$1 meta=$2 package
	if compgen -G "$folder/boot/vmlinuz-*" > /dev/null; then
		return 0
	fi
	apt-get update -qq
	package=$(kernel_of "$meta")
	echo "unpacking $package"
	rm -rf "$folder.new"
	mkdir -p "$folder.new/download"
	(cd "$folder.new/download" && apt-get download -qq -o APT::Sandbox::User=root "$package")
	dpkg -x "$folder.new"/download/*.deb "$folder.new"
	rm -rf "$folder.new/download"
	mv -T "$folder.new" "$folder"
}

# The leaf is a namespace. Each spine is a VXLAN segment in which every leaf has a port; which one a packet takes is
# chosen by its ports, as by any switch. Run again, it makes all anew.
make_leaf() {
	local underlay=$1 number=$2 spine peer
	shift 2
	modprobe -a veth vxlan 2> /dev/null || true
	ip netns del leaf 2> /dev/null || true
	ip netns add leaf
	ip link add roce0 mtu "$MTU" up type veth peer name host mtu "$MTU" netns leaf
	ip addr add "10.77.$number.1/32" dev roce0
	ip -n leaf link set lo up
	ip -n leaf link set host up xdpdrv object "$PORT_OBJECT" program lab_port # without it the NIC's XDP_TX goes nowhere
	ip -n leaf addr add "10.77.$number.254/24" dev host
	ip netns exec leaf sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1
	for spine in $SPINES; do
		ip link add "spine$spine" mtu "$MTU" type vxlan id "$((VNI + spine))" dev "$underlay" dstport 4789
		for peer in "$@"; do
			bridge fdb append 00:00:00:00:00:00 dev "spine$spine" dst "$peer"
		done
		ip link set "spine$spine" netns leaf
		ip -n leaf addr add "10.78.$spine.$number/24" dev "spine$spine"
		ip -n leaf link set "spine$spine" up
	done
	ip route replace 10.77.0.0/16 via "10.77.$number.254" dev roce0 onlink src "10.77.$number.1"
	for peer in "$@"; do
		peer=${peer##*.}
		# shellcheck disable=SC2046
		ip -n leaf route add "10.77.$peer.0/24" $(printf "nexthop via 10.78.%s.$peer " $SPINES)
	done
}

case ${1-} in
programs)
	"$CHECKOUT/tools/install_packages.sh" ibverbs-utils iproute2 kmod perftest python3-pyverbs rdma-core
	;;
vm)
	"$CHECKOUT/tools/install_packages.sh" busybox-static qemu-system-x86
	unpack_kernel "${2:?the folder of the kernel}" "${3:-linux-image-amd64}"
	;;
modules)
	modprobe -a rdma_rxe veth sch_tbf sch_fq cls_bpf cls_flower act_gact act_pedit
	;;
device)
	modprobe rdma_rxe
	rdma link show "rxe-${2:?an interface}/1" > /dev/null 2>&1 || rdma link add "rxe-$2" type rxe netdev "$2"
	;;
leaf)
	make_leaf "${@:2}"
	;;
*)
	sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
