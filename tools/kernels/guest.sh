#!/bin/sh
# Inside the virtual machine: the modules that the kernel tests need, then the tests. Usage: guest.sh [PYTEST ARGUMENT]...
set -eu
modprobe -a veth tun sch_ingress cls_bpf sch_htb sch_fq 2> /dev/null || true
export HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis # the checkout is read-only here
exec .venv/bin/python -u -m pytest -p tools.run_tests.results -p no:cacheprovider "$@"
