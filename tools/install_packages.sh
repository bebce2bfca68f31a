#!/usr/bin/env bash
# Install those of the named Debian packages that are not there. What apt says is shown only where it fails.
set -euo pipefail

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# dpkg-query fails where it does not know one of the names, and lists the others all the same.
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2> /dev/null || true)
missing=()
for package in "$@"; do
	grep -qxF "installed $package" <<< "$installed" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

echo "installing Debian packages: ${missing[*]}"
log=$(mktemp --tmpdir cwdp-apt.XXXXXX)
if as_root apt-get update > "$log" 2>&1 \
	&& as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y --no-install-recommends "${missing[@]}" >> "$log" 2>&1; then
	rm "$log"
else
	tail -20 "$log" >&2
	echo "error: the packages could not be installed; all that apt said is in $log" >&2
	exit 1
fi
