#!/usr/bin/env bash
# Debian 12 as an archive, from Debian's packages alone. Usage: system.sh ARCHIVE UNIT|- PACKAGE...
#
# UNIT is enabled in it; a PACKAGE is the name of one of Debian's, or the path of a .deb, whose dependencies are to be named.
set -euo pipefail

archive=$1 unit=$2
shift 2
names=() files=()
for package in "$@"; do
	case $package in
	*/*.deb) files+=("$package") ;;
	*) names+=("$package") ;;
	esac
done
hooks=()
if [ "$unit" != - ]; then
	wants=etc/systemd/system/multi-user.target.wants
	hooks+=(--customize-hook="copy-in $unit /etc/systemd/system")
	hooks+=(--customize-hook="mkdir -p \"\$1/show\" \"\$1/$wants\" && ln -s ../${unit##*/} \"\$1/$wants/${unit##*/}\"")
fi
if [ "${#files[@]}" -gt 0 ]; then
	hooks+=(--customize-hook="mkdir \"\$1/debs\"" --customize-hook="copy-in ${files[*]} /debs")
	hooks+=(--customize-hook='chroot "$1" sh -c "dpkg --install /debs/*.deb"')
	hooks+=(--customize-hook='rm -r "$1/debs"')
fi
# Nothing of how this machine reaches Debian is left in it.
hooks+=(--customize-hook='echo "deb http://deb.debian.org/debian bookworm main" > "$1/etc/apt/sources.list"')
hooks+=(--customize-hook='rm -rf "$1"/etc/apt/sources.list.d/* "$1"/etc/resolv.conf "$1"/var/log/*.log "$1"/var/log/apt')
IFS=,
exec mmdebstrap --variant=apt --include="${names[*]}" "${hooks[@]}" bookworm "$archive"
