"""The measurement of judging facts: its figures, on few hosts."""

from tools.bench.audit import judging


def test_figures_of_few_hosts() -> None:
    found = {figure["name"]: figure for figure in judging.figures(hosts=20, faulty=3)}
    assert set(found) == {
        "audit.loading",
        "audit.judging_20_hosts",
        "audit.judging_20_hosts_3_faults",
        "audit.memory",
    }
    uniform, faulty = found["audit.judging_20_hosts"], found["audit.judging_20_hosts_3_faults"]
    assert uniform["reference"]["findings"] == 0
    assert uniform["reference"]["subjects"] == 20 * 26
    assert faulty["reference"]["findings"] >= 3
    assert uniform["met"] is True
    assert found["audit.memory"]["value"] > 0
