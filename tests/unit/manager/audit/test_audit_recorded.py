"""The default checks on recorded hosts of four kinds: what was built into them is found, and nothing else fails."""

import asyncio
from pathlib import Path

import pytest

from cwdp.audit.collecting import Wanted, collect
from manager.audit.checks.loading import load_checks
from manager.audit.judging.judge import judge
from manager.audit.results import Audit
from manager.audit.summary import exit_status
from manager.audit.today import today
from tests.unit.audit import audit_trees

WARNS = {
    "cloud": set(),
    "infiniband": set(),
    "h100": {"acs-off"},
    "mi300x": {
        "acs-off",
        "governor-performance",
        "iommu-passes-through",
        "module-rx-power",
        "numa-balancing-off",
    },
    "v100": {
        "clock-synchronised",
        "governor-performance",
        "gpu-ecc-errors",
        "gpu-persistence",
        "irqs-on-node",
        "mtu-for-roce",
        "nic-errors-growing",
        "rdma-errors-growing",
    },
}
FAILS = {
    "v100": {("gpu-peer-memory", ""), ("nvlinks", "2"), ("pcie-width", "ens1f0"), ("pcie-width", "ens1f1")}
}


def _judged(name: str, root: Path) -> Audit:
    facts = asyncio.run(collect(Wanted(host=name, root=str(audit_trees.write(name, root / name)))))
    assert facts.troubles == {}
    return judge(load_checks(), [facts], today=today())


@pytest.mark.parametrize("name", audit_trees.names())
def test_what_is_built_into_a_recorded_host_is_found(name: str, tmp_path: Path) -> None:
    audit = _judged(name, tmp_path)
    fails = {
        (one.check, one.subject) for one in audit.results if one.verdict in ("fail", "outlier", "divided")
    }
    assert fails == FAILS.get(name, set())
    assert {one.check for one in audit.results if one.verdict == "warn"} == WARNS[name]
    assert exit_status(audit) == bool(fails)
