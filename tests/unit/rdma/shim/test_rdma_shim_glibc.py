"""The oldest glibc with which what is built here can be loaded: containers have older ones than their hosts."""

import re
import subprocess

import need

from tools.shim import Built

OLDEST = (2, 17)
"""Of CentOS 7; Ubuntu 20.04 has 2.31."""

AUDITS = (2, 35)
"""With the loaders before, programs crash; they cannot load what needs this version, and go on without."""


def newest(library: str) -> tuple[int, ...]:
    """The newest version of glibc of which a library needs a function."""
    need.installed("objdump")
    told = subprocess.run(("objdump", "-T", library), capture_output=True, text=True, check=True).stdout
    versions = re.findall(r"\*UND\*.*\(?GLIBC_([\d.]+)\)?", told)
    assert len(versions) > 5
    return max(tuple(map(int, version.split("."))) for version in versions)


def test_the_shim_needs_no_function_of_a_newer_glibc(built: Built) -> None:
    assert newest(str(built.shim)) <= OLDEST


def test_the_shim_loads_the_libraries_that_older_glibcs_have_them_in(built: Built) -> None:
    need.installed("readelf")
    told = subprocess.run(("readelf", "-d", built.shim), capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(.+)\]", told)) == {
        "libpthread.so.0", "libdl.so.2", "libc.so.6", "libibverbs.so.1",
    }  # fmt: skip


def test_loaders_that_cannot_audit_cannot_load_what_would_have_them_do_so(built: Built) -> None:
    assert newest(str(built.audit)) >= AUDITS
