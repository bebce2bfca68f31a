#!/usr/bin/env bash
# Take single programs out of Debian packages without installing these, as they would start services.
#
#   unpack_programs.sh FOLDER PACKAGE:PROGRAM...
#
# Root is asked for only where apt does not know the packages yet.
set -euo pipefail

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

download() {
	(cd "$new/packages" && apt-get download -qq -o APT::Sandbox::User=root "${packages[@]}")
}

folder=$1
shift
packages=("${@%%:*}")
new=$folder.new
rm -rf "$new"
mkdir -p "$new/packages"
echo "unpacking ${*##*:}"
log=$(mktemp --tmpdir cwdp-apt.XXXXXX)
if ! download 2> "$log" && ! { as_root apt-get update -qq && download; } 2>> "$log"; then
	tail -20 "$log" >&2
	echo "error: ${packages[*]} could not be downloaded; all that apt said is in $log" >&2
	exit 1
fi
rm "$log"
for each in "$@"; do
	dpkg-deb --fsys-tarfile "$new/packages/${each%%:*}"_*.deb \
		| tar -xf - -C "$new" --strip-components=3 "./usr/bin/${each##*:}"
done
rm -rf "$new/packages" "$folder"
mv -T "$new" "$folder"
