# Everything a newcomer needs: `make demo`, `make play`, `make test`. Each sets up what it needs first. V=1 shows the compilers' lines.

# An ordinary user of Debian has none of the programs of the system, nats-server among them.
export PATH := $(PATH):/usr/sbin:/sbin

VENV   := .venv
PYTHON := $(VENV)/bin/python
PIP    := $(PYTHON) -m pip install --disable-pip-version-check --progress-bar off
RUN_TESTS := $(PYTHON) -m tools.run_tests
SUDO   := $(shell [ $$(id -u) = 0 ] || echo sudo)
Q      := $(if $(V),,@)

CLANG        := clang-16
CLANG_FORMAT := clang-format-16
BPF_CFLAGS   := -target bpf -mcpu=v3 -g -O2 -Wall -Wextra -Werror -fdebug-compilation-dir=. -Ibpf -I/usr/include/$(shell uname -m)-linux-gnu
BPF_HEADERS  := $(wildcard bpf/*.h bpf/*/*.h)
BPF_SOURCES  := $(wildcard bpf/*.bpf.c bpf/*/*.bpf.c)
BPF_OBJECTS  := $(patsubst %.c,build/bpf/%.o,$(notdir $(BPF_SOURCES)))
CC           := gcc
ROCE_CFLAGS  := -std=gnu11 -O2 -Wall -Wextra -Werror -Itools/roce/program
ROCE_SOURCES := $(wildcard tools/roce/program/*.c tools/roce/program/*/*.c)
ROCE_HEADERS := $(wildcard tools/roce/program/*.h tools/roce/program/*/*.h)
SHIM_CFLAGS  := -std=gnu11 -D_GNU_SOURCE -O2 -s -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -Wl,-z,defs
# Where glibcs before 2.34 have threads and dlopen; later ones have these names for older programs.
SHIM_OLDER   := -l:libpthread.so.0 -l:libdl.so.2
SHIM         := cwdp/rdma/shim
SHIM_SOURCES := $(wildcard $(SHIM)/*.c $(SHIM)/posts/*.c $(SHIM)/ib/*.c)
SHIM_HEADERS := $(wildcard $(SHIM)/*.h $(SHIM)/*/*.h)
SHIM_AUDIT   := $(wildcard $(SHIM)/audit/*.c)
SHIM_FAKES   := $(wildcard tools/shim/*/*.[ch])
NCCL         := cwdp/nccl/plugin
NCCL_SOURCES := $(wildcard $(NCCL)/*.c)
NCCL_HEADERS := $(wildcard $(NCCL)/*.h) $(SHIM)/program/job.h
NCCL_PLAYED  := $(wildcard tools/nccl/*/*.[ch])
AS_NCCL_SOURCES := $(wildcard tools/rdma/program/*.c) tools/shim/program/lib.c
AS_NCCL_HEADERS := $(wildcard tools/rdma/program/*.h)
AS_NCCL_CFLAGS := -std=gnu11 -D_GNU_SOURCE -DAS_NCCL -O2 -Wall -Wextra -Werror -Itools/shim/fake -Itools/shim/program
COLLECTIVE_SOURCES := $(wildcard tools/collective/program/*.c) $(wildcard tools/nccl/caller/*.c) tools/shim/program/lib.c
COLLECTIVE_HEADERS := $(wildcard tools/collective/program/*.h)
COLLECTIVE_CFLAGS  := $(AS_NCCL_CFLAGS) -pthread -I$(NCCL) -Itools/nccl/caller
FUZZ_SOURCES := $(wildcard tests/bpf/fuzz/*.[ch])
UPROBES_SOURCES := $(wildcard cwdp/agent/uprobes/probes/*.c tools/uprobes/program/*.[ch])
MPI_CFLAGS   := -std=gnu11 -O2 -Wall -Wextra -Werror
MPI_SOURCES  := $(wildcard tools/mpi/program/*.c)
PYTHON_FOLDERS := cwdp manager tools
FUZZ_FRAMES  := 20000000
FUZZ_MESSAGES := 20000000

DEBIAN_PACKAGES := bpftool chromium chromium-driver $(CLANG) $(CLANG_FORMAT) ethtool gcc ibsim-utils infiniband-diags iperf3 iproute2 iputils-ping libbpf-dev libbpf1 \
	libc6-dev libibverbs-dev libopenmpi-dev linux-libc-dev make nats-server openmpi-bin opensm python3-bpfcc python3-pyverbs python3-venv python3-yaml \
	tcpdump vmtouch

# Among them what our packages depend on: tests run their programs here.
PACKAGING_TOOLS := debhelper dpkg-dev e2fsprogs fakeroot lintian mmdebstrap python3-nacl python3-prometheus-client python3-rich \
	qemu-system-x86 umoci

MINUTES := 30
SEED    := 1

.PHONY: setup bpf roce shim nccl as-nccl collective mpi abi abi-check demo play soak test test-rdma test-kernels machine check lint types unit fuzz fuzz-shim bench \
	wheel deb image test-packages packaging-tools dashboards vendor pin clean

setup: build/.packages build/.venv build/.bytecode build/monitoring-tools build/kernel-headers bpf roce shim nccl as-nccl collective mpi abi-check

build/.packages: Makefile tools/install_packages.sh
	@mkdir -p build
	@tools/install_packages.sh $(DEBIAN_PACKAGES)
	@touch $@

# From the distribution's Python, since bcc and pyverbs are built against it.
build/.venv: requirements.txt requirements-dev.txt pyproject.toml | build/.packages
	@[ -x $(PYTHON) ] || /usr/bin/python3 -m venv --system-site-packages $(VENV)
	@echo "installing Python packages"
	@{ $(PIP) --require-hashes -r requirements.txt -r requirements-dev.txt \
		&& $(PIP) --no-deps --no-build-isolation -e .; } > build/pip.log 2>&1 \
		|| { tail -20 build/pip.log; echo "error: all that pip said is in build/pip.log"; exit 1; } >&2
	@touch $@

# Or each process compiles all that it imports, where the environment or the folder's owner keeps it from storing that.
build/.bytecode: $(shell find $(PYTHON_FOLDERS) -name '*.py') build/.venv
	@$(PYTHON) -m compileall -q $(PYTHON_FOLDERS)
	@touch $@

# What checks alert rules. The packages themselves would start a Prometheus server here.
build/monitoring-tools: tools/unpack_programs.sh | build/.packages
	@tools/unpack_programs.sh $@ prometheus:promtool prometheus-alertmanager:amtool

# What bcc compiles by where the kernel's own headers are not installed: tests and benchmarks.
build/kernel-headers: tools/kernel_headers.sh | build/.packages
	@tools/kernel_headers.sh $@

bpf: $(BPF_OBJECTS)

vpath %.bpf.c bpf bpf/tools

build/bpf/%.bpf.o: %.bpf.c $(BPF_HEADERS) Makefile | build/.packages
	@mkdir -p build/bpf
	@echo "building $@"
	$(Q)$(CLANG) $(BPF_CFLAGS) -c $< -o $@.new
	@mv $@.new $@

# The traffic generator's program, one process a host of the lab.
roce: build/roce/cwdp-roce

build/roce/cwdp-roce: $(ROCE_SOURCES) $(ROCE_HEADERS) Makefile | build/.packages
	@mkdir -p build/roce
	@echo "building $@"
	$(Q)$(CC) $(ROCE_CFLAGS) $(ROCE_SOURCES) -o $@.new
	@mv $@.new $@

# All-reduces for OpenMPI, one process a host of the lab.
mpi: build/mpi/cwdp-allreduce

build/mpi/cwdp-allreduce: $(MPI_SOURCES) Makefile | build/.packages
	@mkdir -p build/mpi
	@echo "building $@"
	$(Q)mpicc $(MPI_CFLAGS) $(MPI_SOURCES) -o $@.new
	@mv $@.new $@

# What stands before libibverbs in programs. It stays loaded, as its thread goes on.
shim: build/shim/libcwdp_verbs.so build/shim/libcwdp_verbs_audit.so

build/shim/libcwdp_verbs.so: $(SHIM_SOURCES) $(SHIM_HEADERS) $(SHIM)/link/exports.map Makefile | build/.packages
	@mkdir -p build/shim
	@echo "building $@"
	$(Q)$(CC) $(SHIM_CFLAGS) -Wl,-soname,libcwdp_verbs.so -Wl,--version-script=$(SHIM)/link/exports.map -Wl,-z,nodelete \
		-Wl,--no-as-needed -include $(SHIM)/link/oldest.h $(SHIM_SOURCES) -l:libibverbs.so.1 $(SHIM_OLDER) -o $@.new
	@mv $@.new $@

build/shim/libcwdp_verbs_audit.so: $(SHIM_AUDIT) Makefile | build/.packages
	@mkdir -p build/shim
	@echo "building $@"
	$(Q)$(CC) $(SHIM_CFLAGS) $(SHIM_AUDIT) -o $@.new
	@mv $@.new $@

# What NCCL and RCCL load as their profiler. It stays loaded, as NCCL may load it again.
nccl: build/nccl/libcwdp_nccl.so

build/nccl/libcwdp_nccl.so: $(NCCL_SOURCES) $(NCCL_HEADERS) $(NCCL)/exports.map Makefile | build/.packages
	@mkdir -p build/nccl
	@echo "building $@"
	$(Q)$(CC) $(SHIM_CFLAGS) -Wl,-soname,libcwdp_nccl.so -Wl,--version-script=$(NCCL)/exports.map -Wl,-z,nodelete \
		-Wl,--no-as-needed -include $(SHIM)/link/oldest.h $(NCCL_SOURCES) -l:libpthread.so.0 -o $@.new
	@mv $@.new $@

# A program of RDMA WRITEs that comes by verbs as NCCL does, for the virtual machine with Soft-RoCE.
as-nccl: build/rdma/as_nccl

build/rdma/as_nccl: $(AS_NCCL_SOURCES) $(AS_NCCL_HEADERS) $(SHIM_FAKES) Makefile | build/.packages
	@mkdir -p build/rdma
	@echo "building $@"
	$(Q)$(CC) $(AS_NCCL_CFLAGS) $(AS_NCCL_SOURCES) -ldl -o $@.new
	@mv $@.new $@

# Collectives over verbs in NCCL's order of calls, one process a rank.
collective: build/collective/cwdp-collective

build/collective/cwdp-collective: $(COLLECTIVE_SOURCES) $(COLLECTIVE_HEADERS) $(NCCL_HEADERS) $(NCCL_PLAYED) $(SHIM_FAKES) Makefile | build/.packages
	@mkdir -p build/collective
	@echo "building $@"
	$(Q)$(CC) $(COLLECTIVE_CFLAGS) $(COLLECTIVE_SOURCES) -ldl -o $@.new
	@mv $@.new $@

# cwdp/dataplane/abi.py and enums.py are written from the object's BTF; a drift between C and Python fails the build.
abi: build/bpf/cwdp.bpf.o build/.venv
	$(PYTHON) tools/gen_abi.py $< cwdp/dataplane/abi.py

abi-check: build/.abi

build/.abi: build/bpf/cwdp.bpf.o cwdp/dataplane/abi.py cwdp/dataplane/enums.py tools/gen_abi.py build/.venv
	@$(PYTHON) tools/gen_abi.py $< cwdp/dataplane/abi.py --check
	@touch $@

# What is installed on hosts, in build/packages: the wheel holds the eBPF programs and the libraries that programs load, so that no host needs a compiler.
wheel: build/bpf/cwdp.bpf.o shim nccl build/.venv
	@$(PYTHON) -m tools.packages.wheel

deb: build/bpf/cwdp.bpf.o shim nccl build/.venv packaging-tools
	@$(PYTHON) -m tools.packages.deb

# The agent's container image, from Debian's packages and ours.
image: deb
	@$(SUDO) $(PYTHON) -m tools.packages.image

# In a chroot, a container and a virtual machine, the latter with systemd: installed, upgraded under traffic, removed.
test-packages: setup image
	@$(RUN_TESTS) packages

packaging-tools: | build/.packages
	@tools/install_packages.sh $(PACKAGING_TOOLS)

demo: setup
	$(SUDO) $(VENV)/bin/cwdp lab run demo

play: setup
	$(SUDO) $(VENV)/bin/cwdp lab run play

# Everything goes wrong in a lab, at random: MINUTES=5 SEED=7 for another one. Fails where something did not hold that must.
soak: setup
	$(SUDO) $(PYTHON) -m tools.soak --minutes $(MINUTES) --seed $(SEED)

# Every tier, whatever becomes of those before it, and at the end a table of what ran. With CI set, all must have run.
test: setup machine
	@$(RUN_TESTS) lint types unit kernel page lab rdma

# Real RDMA in a virtual machine; where none can run, the tests skip and say why.
test-rdma: setup machine
	@$(RUN_TESTS) rdma

# The kernel tests on Debian's kernels, each emulated: hours. TESTS="tests/bpf/steering/test_steer.py ..." runs some.
test-kernels: setup
	$(SUDO) $(PYTHON) -m tools.kernels $(TESTS)

# Grafana's dashboards are written from tools/dashboards; a drift fails the unit tests.
dashboards: build/.venv
	$(PYTHON) -m tools.dashboards

machine: | build/.packages
	@$(SUDO) tools/rdma/provision.sh programs && $(SUDO) tools/rdma/provision.sh vm build/rdma/kernel \
		|| echo "the virtual machine could not be provided" >&2

check: setup
	@$(RUN_TESTS) lint types unit

lint:
	$(Q)$(PYTHON) -m ruff check .
	$(Q)$(PYTHON) -m ruff format --check .
	$(Q)$(CLANG_FORMAT) --dry-run --Werror $(BPF_HEADERS) $(BPF_SOURCES) $(ROCE_HEADERS) $(ROCE_SOURCES) $(FUZZ_SOURCES) \
		$(SHIM_HEADERS) $(SHIM_SOURCES) $(SHIM_AUDIT) $(SHIM_FAKES) $(NCCL_HEADERS) $(NCCL_SOURCES) $(NCCL_PLAYED) $(AS_NCCL_HEADERS) $(AS_NCCL_SOURCES) \
		$(COLLECTIVE_HEADERS) $(COLLECTIVE_SOURCES) $(MPI_SOURCES) $(UPROBES_SOURCES)

types:
	$(Q)$(PYTHON) -m mypy

unit:
	@$(RUN_TESTS) unit

# Mutated frames through the programs, from a seed that is printed: about 15 s a million.
fuzz: setup
	$(SUDO) CWDP_FUZZ_FRAMES=$(FUZZ_FRAMES) $(PYTHON) -m pytest tests/bpf/fuzz/test_fuzz.py -o log_cli=true --log-cli-level=INFO

# Mutated messages to the verbs shim, from a seed that is printed: about 10 s a million. Then a million to its agent: a minute.
fuzz-shim: setup
	CWDP_FUZZ_MESSAGES=$(FUZZ_MESSAGES) $(PYTHON) -m pytest tests/unit/rdma/shim/test_rdma_shim_fuzz.py -k 'not asan' \
		-o log_cli=true --log-cli-level=INFO
	CWDP_FUZZ_MESSAGES=1000000 $(PYTHON) -m pytest tests/unit/agent/verbs/test_agent_verbs_harm.py -k fuzzed \
		-o log_cli=true --log-cli-level=INFO

# What is measured is stored in docs/results, and docs/measurements.md written from it.
bench: setup
	$(PYTHON) -m tools.measurements run 'bench-*'

pin:
	$(PYTHON) -m piptools compile -q --upgrade --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--strip-extras -o requirements.txt requirements.in
	$(PYTHON) -m piptools compile -q --upgrade --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--strip-extras --allow-unsafe -o requirements-dev.txt requirements-dev.in

# What the page takes from npm, by the lock file; needed only where a version changes.
vendor:
	$(PYTHON) -m tools.vendor

clean:
	rm -rf build $(VENV) *.egg-info
