"""Programs that call what uprobes are attached to."""

from pathlib import Path

import need
import pytest

from cwdp.agent.uprobes.requirements import has_bcc
from tools.uprobes import HEADERS, build


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With libraries that look like libibverbs and libnccl, where bcc can compile."""
    need.installed("gcc")
    need.installed(HEADERS)
    if not has_bcc():
        need.missing("python3-bpfcc")
    return build(tmp_path_factory.mktemp("uprobes"))
