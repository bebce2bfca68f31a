"""Every experiment in a lab takes the clocks that its hosts have."""

from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from cwdp.errors import LabError
from tools.clocks import KINDS, ClockKind
from tools.experiments import demo, sync
from tools.experiments.causes import run as causes_run
from tools.experiments.contention import run as contention_run
from tools.experiments.failover import cutting
from tools.experiments.failover.run import failover
from tools.experiments.incast import run as incast_run
from tools.experiments.nic_failover import run as nic_failover_run
from tools.lab import LabSpec

EXPERIMENTS: dict[str, tuple[ModuleType, click.Command]] = {
    "causes": (causes_run, causes_run.causes),
    "contention": (contention_run, contention_run.contention),
    "demo": (demo, demo.demo),
    "failover": (cutting, failover),
    "incast": (incast_run, incast_run.incast),
    "nic-failover": (nic_failover_run, nic_failover_run.nic_failover),
    "sync": (sync, sync.sync),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("kind", [None, *KINDS])
def test_an_experiment_has_the_clocks_that_it_is_told(
    name: str, kind: ClockKind | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, command = EXPERIMENTS[name]
    raised: list[LabSpec] = []

    def lab_for_run(_: str, spec: LabSpec) -> None:
        raised.append(spec)
        raise LabError("no lab", "there is none in a unit test")

    monkeypatch.setattr(module, "lab_for_run", lab_for_run)
    result = CliRunner().invoke(command, [] if kind is None else ["--clocks", kind])
    assert isinstance(result.exception, LabError)
    assert [spec.clocks for spec in raised] == [kind or "disciplined"]
