"""A loaded dataplane for the tables, shared by all that leave it as they found it."""

from collections.abc import Iterator
from pathlib import Path

import need
import pytest
from machine import Machine, Namespace, add_veth, machine

from cwdp.dataplane import loader


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
