"""For how long programs of this host have waited for a processor: the kernel's pressure stall information."""

import re
from pathlib import Path

FILE = Path("/proc/pressure/cpu")
_SOME_US = re.compile(r"^some .*total=(\d+)", re.MULTILINE)


def processor_waits_ns(file: Path = FILE) -> int | None:
    """The time in which some program waited for a processor, since the host started; None where the kernel does not tell.

    Each processor counts as much as it had to do (the kernel's `Documentation/accounting/psi.rst`).
    """
    try:
        found = _SOME_US.search(file.read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1_000
