"""Which processes are taken for agents."""

import pytest

from cwdp.doctor.reading.processes import is_agent


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/lib/cwdp/bin/python3 /usr/bin/cwdp agent run --config /etc/cwdp/agent.toml", True),
        ("/opt/cwdp/.venv/bin/python /opt/cwdp/.venv/bin/cwdp agent run", True),
        ("python -u -m cwdp agent run", True),
        ("timeout 30 cwdp agent run", False),
        ("sudo /usr/bin/cwdp agent run", False),
        ("python3 -m cwdp.agent.liveness.process", False),
        ("python3 /usr/bin/cwdp manager run", False),
        ("python3 /usr/bin/cwdp agent", False),
        ("python3", False),
        ("", False),
    ],
)
def test_an_agent_is_known_by_its_command_line(command: str, expected: bool) -> None:
    assert is_agent(command.split()) is expected
