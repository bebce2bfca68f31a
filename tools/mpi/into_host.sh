#!/bin/sh
# What OpenMPI takes for ssh (plm_rsh_agent): runs a command in a host of the lab CWDP_LAB, which has a hostname of its own.
#
#   into_host.sh HOST COMMAND...
set -eu
host=$1
shift
exec nsenter --net="/run/netns/cw-$CWDP_LAB-$host" unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
