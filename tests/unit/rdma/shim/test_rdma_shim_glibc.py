"""The oldest glibc with which what is built here can be loaded: containers have older ones than their hosts."""

import re
import subprocess

import need
import pytest

from tools.shim import Built

OLDEST = (2, 17)
"""Of CentOS 7; Ubuntu 20.04 has 2.31."""


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("which", ["shim", "audit"])
def test_no_function_of_a_newer_glibc_is_needed(built: Built, which: str) -> None:
    need.installed("objdump")
    library = str(getattr(built, which))
    versions = re.findall(r"\*UND\*.*\(?GLIBC_([\d.]+)\)?", said("objdump", "-T", library))
    assert len(versions) > 5
    assert max(tuple(map(int, version.split("."))) for version in versions) <= OLDEST


@pytest.mark.parametrize("which", ["shim", "audit"])
def test_the_libraries_that_older_glibcs_have_them_in_are_loaded(built: Built, which: str) -> None:
    need.installed("readelf")
    needed = set(re.findall(r"NEEDED.*\[(.+)\]", said("readelf", "-d", str(getattr(built, which)))))
    assert needed >= {"libpthread.so.0", "libdl.so.2", "libc.so.6"}
    assert needed <= {"libpthread.so.0", "libdl.so.2", "libc.so.6", "libibverbs.so.1"}
