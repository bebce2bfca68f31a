"""Services and commands start no threads of a mathematical library, which would spin on the host's processors."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os
import cwdp.cli
import numpy as np
square = np.ones((600, 600))
np.linalg.eigh(square @ square)
print(len(os.listdir("/proc/self/task")), os.environ["OPENBLAS_NUM_THREADS"])
"""


@pytest.mark.parametrize(("own", "threads"), [(None, 1), ("2", 2)])
def test_there_is_one_thread_unless_the_environment_says_otherwise(own: str | None, threads: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if own is not None:
        environment["OPENBLAS_NUM_THREADS"] = own
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    count, setting = done.stdout.split()
    assert setting == (own or "1")
    assert int(count) <= threads
