"""A host with more watched paths than each can have a pulse often: a link that falls silent is left all the same."""

import pytest
from conftest import lab_name

from tools.bench.liveness import watching
from tools.lab import LabSpec

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

PORTS, ACTIVE, CUTS = 48, 6, 3
SANE_MS = 1_000.0


def test_a_silent_link_is_left_by_a_host_with_many_watched_paths() -> None:
    spec = LabSpec(name=lab_name("liveness"), leaves=4, spines=4, hosts_per_leaf=1)
    with watching(spec, PORTS, ACTIVE) as host:
        assert host.watched > 100
        cuts = host.cut(CUTS, seed=7)
    assert len(cuts.lasted_ms) >= CUTS
    assert max(cuts.lasted_ms) < SANE_MS
    assert cuts.died == 0
