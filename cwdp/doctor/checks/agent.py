"""The agent: what it is told, and whether it runs."""

from collections.abc import Iterator

from cwdp.doctor.facts import Facts
from cwdp.doctor.result import Result

UNIT = "cwdp-agent"
OFTEN = 3


def configuration(facts: Facts) -> Iterator[Result]:
    """Whether its configuration can be used."""
    if facts.config_problem is not None:
        what, step = facts.config_problem.message, facts.config_problem.hint
        yield Result(name="configuration", verdict="fail", what=what, next_step=step)
    elif facts.config is not None:
        mode = "measures and steers nothing" if facts.config.observe_only else "measures and steers"
        what = f"{', '.join(facts.config.nics)}; {mode}"
        yield Result(name="configuration", verdict="ok", what=what)


def service(facts: Facts) -> Iterator[Result]:
    """Whether it runs."""
    found, log = facts.agent, f"journalctl -u {UNIT} -n 20"
    if found.state in ("failed", "activating") or found.restarts >= OFTEN:
        what = f"its unit is {found.state}, restarted {found.restarts} times"
        yield Result(name="agent", verdict="fail", what=what, next_step=f"see why: {log}")
    elif found.processes > 1:
        what = f"{found.processes} agents run in this network namespace"
        yield Result(
            name="agent", verdict="fail", what=what, next_step="stop all but one: pgrep -af 'cwdp agent run'"
        )
    elif found.processes:
        yield Result(name="agent", verdict="ok", what="it runs")
    else:
        step = "cwdp agent run" if found.state is None else f"systemctl start {UNIT}; {log}"
        yield Result(name="agent", verdict="warn", what="it does not run", next_step=step)
