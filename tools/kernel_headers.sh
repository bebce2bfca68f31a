#!/usr/bin/env bash
# Unpack the headers of Debian's stock kernel, as bcc needs some to compile by; about 12 MB are downloaded.
#
#   kernel_headers.sh FOLDER
#
# They are in two packages that point at each other by absolute paths, so both are laid into one folder, which bcc takes by
# BCC_KERNEL_SOURCE. Root is asked for only where apt does not know the packages yet.
set -euo pipefail

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# linux-headers-6.1.0-56-amd64 and linux-headers-6.1.0-56-common
download() {
	local package
	package=$(apt-cache depends "linux-headers-$machine" | awk '$1 == "Depends:" {print $2}')
	(cd "$new/packages" && apt-get download -qq -o APT::Sandbox::User=root "$package" "${package%-"$machine"}-common")
}

folder=$1
machine=$(dpkg --print-architecture)
case $machine in
amd64) arch=x86 ;;
*) arch=$machine ;;
esac
new=$folder.new
rm -rf "$new"
mkdir -p "$new/packages"
echo "unpacking kernel headers"
log=$(mktemp --tmpdir cwdp-apt.XXXXXX)
if ! download 2> "$log" && ! { as_root apt-get update -qq && download; } 2>> "$log"; then
	tail -20 "$log" >&2
	echo "error: the kernel's headers could not be downloaded; all that apt said is in $log" >&2
	exit 1
fi
rm "$log"
for package in "$new"/packages/*-common_*.deb "$new"/packages/*-"$machine"_*.deb; do
	dpkg-deb --fsys-tarfile "$package" | tar -xf - -C "$new" --strip-components=4 --wildcards --no-wildcards-match-slash \
		"./usr/src/*/include" "./usr/src/*/arch/$arch/include"
done
rm -rf "$new/packages" "$folder"
mv -T "$new" "$folder"
