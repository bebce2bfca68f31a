"""The packages on Debian 12 with systemd as init: in namespaces on this kernel, and in a virtual machine with Debian's.

Each goes through all steps, and the tests look at what it found.
"""

from typing import Any

from tools.packages.machine import older

Shown = dict[str, Any]
FIVE = 1 << 39 | 1 << 12 | 1 << 13 | 1 << 38 | 1 << 23
"""CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_SYS_NICE."""


def step(shown: Shown, name: str) -> dict[str, Any]:
    assert name in shown, f"the machine came no further than {list(shown)[-1]}"
    found: dict[str, Any] = shown[name]
    assert "error" not in found, found["error"]
    return found


def test_installing_enables_both_services_and_starts_the_manager(shown: Shown) -> None:
    found = step(shown, "install")
    assert found["version"] == older.VERSION
    assert found["enabled"] == {"cwdp-agent": True, "cwdp-manager": True}
    assert found["active"] == {"cwdp-agent": False, "cwdp-manager": True}  # the agent has no keys yet
    assert found["compilers"] == []


def test_the_manager_has_a_user_of_its_own_and_no_capability(shown: Shown) -> None:
    found = step(shown, "install")
    assert (found["manager_user"], found["manager_capabilities"]) == ("cwdp", 0)


def test_a_configured_agent_starts_with_five_capabilities_and_loads_the_dataplane(shown: Shown) -> None:
    found = step(shown, "start")
    assert found["active"] == {"cwdp-agent": True, "cwdp-manager": True}
    assert found["agent_capabilities"] == FIVE
    assert (found["dataplane"]["mode"], found["dataplane"]["attached"]) == ("native", True)


def test_the_doctor_finds_the_host_well(shown: Shown) -> None:
    found = step(shown, "start")
    failed = [check for check in found["doctor"]["checks"] if check["verdict"] == "fail"]
    assert (failed, found["doctor_status"]) == ([], 0)


def test_an_agent_that_stands_still_is_started_anew(shown: Shown) -> None:
    found = step(shown, "watchdog")
    assert int(found["result"]["NRestarts"]) >= 1
    assert found["active"]["cwdp-agent"]


def test_an_upgrade_loses_no_packet(shown: Shown) -> None:
    found = step(shown, "upgrade")
    assert min(found["traffic"]["sent"]) > 100
    assert found["traffic"]["lost"] == [0, 0]


def test_an_upgrade_replaces_programs_and_services_and_keeps_the_configuration(shown: Shown) -> None:
    found = step(shown, "upgrade")
    before, after = found["before"], found["after"]
    assert found["version"] != older.VERSION
    assert before["tag"] != after["tag"]
    assert (found["dataplane"]["current"], found["dataplane"]["attached"]) == (True, True)
    assert before["programs"]["link"] == after["programs"]["link"]  # which was never taken off
    assert all(before["programs"][hook] != after["programs"][hook] for hook in ("xdp_ingress", "tc_egress"))
    assert before["pid"] != after["pid"]
    assert found["active"] == {"cwdp-agent": True, "cwdp-manager": True}
    assert found["config_kept"]


def test_removing_leaves_the_configuration_alone(shown: Shown) -> None:
    found = step(shown, "remove")
    assert found["config"] == ["agent.toml", "manager.toml"]
    assert (found["left_attached"], found["left_pinned"], found["left_running"]) == (False, [], False)
    assert found["left_of_the_program"] == []


def test_purging_leaves_nothing(shown: Shown) -> None:
    assert step(shown, "purge")["left"] == []
