"""A loaded dataplane for the tables, shared by all that leave it as they found it."""

from collections.abc import Iterator
from pathlib import Path

import need
import pytest
from kernels import HAS_TCX, NO_TCX
from machine import Machine, Namespace, add_veth, machine

from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.loading import loader


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "kernel" in item.keywords:
        need.root("for loading eBPF programs")
        need.installed(loader.OBJECT)
        if "\tbpf\n" not in Path("/proc/filesystems").read_text():
            pytest.skip("this kernel has no BPF file system")


@pytest.fixture(scope="session")
def loaded() -> Iterator[Machine]:
    with machine() as made:
        yield made


@pytest.fixture
def dataplane(loaded: Machine) -> Machine:
    """The shared machine, its slots, keys and clock as new."""
    loaded.reset()
    return loaded


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A network namespace with roce0 and its peer far0; the test is inside."""
    made = Namespace()
    try:
        with made.entered():
            add_veth("roce0", "far0")
            yield made
    finally:
        made.close()


@pytest.fixture
def other_build(tmp_path: Path) -> Path:
    """The same programs under another tag."""
    path = tmp_path / "other.bpf.o"
    path.write_bytes(loader.OBJECT.read_bytes() + b"\0")
    return path


@pytest.fixture
def tcx() -> None:
    """Links at the hooks of tc."""
    if not HAS_TCX:
        pytest.skip(NO_TCX)


@pytest.fixture(params=["tcx", "without_tcx"])
def held_by(request: pytest.FixtureRequest) -> str:
    """What holds the programs at the hooks of tc: links, or filters of clsact."""
    request.getfixturevalue(request.param)
    return {"tcx": "tcx", "without_tcx": "clsact"}[request.param]


@pytest.fixture
def without_tcx(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on kernels before 6.6."""
    real = libbpf.link_create

    def refuse(program_fd: int, ifindex: int, attach_type: int, flags: int = 0) -> int:
        if attach_type in (libbpf.BPF_TCX_EGRESS, libbpf.BPF_TCX_INGRESS):
            raise OSError(22, "Invalid argument")
        return real(program_fd, ifindex, attach_type, flags)

    monkeypatch.setattr(libbpf, "link_create", refuse)
