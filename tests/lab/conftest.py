"""Labs for the tests, under names of their own."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import need
import pytest

from tools.lab import Lab, LabSpec, lifecycle


def lab_name(suffix: str) -> str:
    """Return a name that no other run of the tests has."""
    return f"t{os.getpid()}{suffix}"


def free_port() -> int:
    """A TCP port of this machine's loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def need_ecmp_seeds() -> None:
    """Go on where switches can hash each in its own way; else the ways between pods are not all used."""
    if not Path("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists():
        pytest.skip("this kernel has no seeds for ECMP: Linux 6.11 does")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "lab" in item.keywords:
        need.root("for network namespaces")


@pytest.fixture(scope="session")
def default_lab() -> Iterator[Lab]:
    """The default lab, shared by all tests that leave it as they found it."""
    name = lab_name("shared")
    lifecycle.up(LabSpec(name=name))
    try:
        yield Lab.open(name)
    finally:
        lifecycle.down(name)


@pytest.fixture
def spare_name() -> Iterator[str]:
    """A name for a lab of the test's own, taken down at its end whatever happened."""
    name = lab_name("own")
    yield name
    lifecycle.down(name)
