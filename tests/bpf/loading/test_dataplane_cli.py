"""`cwdp dataplane`: what people see, and the exit status that scripts see."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from machine import add_link

from cwdp.cli import main
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("namespace")]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["dataplane", *arguments])


def test_load_status_unload(held_by: str) -> None:
    tag = loader.object_tag()
    result = run("load", "roce0")
    assert (result.exit_code, result.output) == (0, f"roce0: loaded (build {tag}, native XDP)\n")
    assert run("load", "roce0").output == f"roce0: already loaded, nothing to do (build {tag}, native XDP)\n"
    status = json.loads(run("status", "--json").output)["interfaces"]
    assert [nic["ifname"] for nic in status] == ["roce0"]
    nic = status[0]
    assert (nic["attached"], nic["current"], nic["mode"], nic["egress"]) == (True, True, "native", held_by)
    assert nic["clock"] == {"synced": False, "offset_ns": None, "drift_ppb": None, "bound_ns": None}
    assert set(nic["counters"].values()) == {0}
    assert "roce0" in run("status").output
    assert run("unload", "roce0").output == "roce0: unloaded\n"
    assert run("unload", "roce0").output == "roce0: nothing is loaded\n"
    assert "no dataplane is loaded here" in run("status").output


def test_a_hook_that_was_taken_away_is_told_and_put_right(held_by: str) -> None:
    run("load", "roce0")
    taking_away = {
        "tcx": ["bpftool", "link", "detach", "pinned", str(tree.here("roce0").path / tree.TCX_LINK)],
        "clsact": ["tc", "qdisc", "del", "dev", "roce0", "clsact"],
    }
    subprocess.run(taking_away[held_by], check=True)
    told = run("status").output
    assert "roce0: tc_egress is not attached" in told
    assert "cwdp dataplane load IFNAME" in told
    nic = json.loads(run("status", "--json").output)["interfaces"][0]
    assert (nic["attached"], nic["egress"], nic["mode"]) == (False, "detached", "native")
    assert "put right what was not as it should be (tc_egress is not attached)" in run("load", "roce0").output
    assert "nothing to do" in run("load", "roce0").output


def test_all_of_them_at_once(monkeypatch: pytest.MonkeyPatch, other_build: Path) -> None:
    assert run("upgrade").output == ""
    names = ["far0", "roce0"]
    for name in names:
        run("load", name)
    monkeypatch.setattr(loader, "OBJECT", other_build)
    tag = loader.object_tag()
    assert run("upgrade").output.splitlines() == [
        f"{name}: upgraded (build {tag}, native XDP)" for name in names
    ]
    partly = run("upgrade", "none0", "roce0", "none1")
    assert partly.exit_code == 1
    assert partly.stdout.startswith("roce0: already upgraded")
    assert "there is no interface none0; there is no interface none1" in partly.stderr
    assert run("unload").output == "far0: unloaded\nroce0: unloaded\n"
    assert "no dataplane is loaded here" in run("status").output


def test_another_build(monkeypatch: pytest.MonkeyPatch, other_build: Path) -> None:
    run("load", "roce0")
    monkeypatch.setattr(loader, "OBJECT", other_build)
    refused = run("load", "roce0")
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert refused.stderr.startswith("error: roce0 has the dataplane of another build")
    assert "\n  replace it without losing a packet: cwdp dataplane upgrade roce0" in refused.stderr
    assert not json.loads(run("status", "--json").output)["interfaces"][0]["current"]
    assert run("upgrade", "roce0").output.startswith("roce0: upgraded (build ")
    assert "nothing to do" in run("upgrade", "roce0").output


def test_generic_mode_is_told() -> None:
    add_link("odd0", "bridge")
    result = run("load", "odd0")
    assert result.exit_code == 1
    assert "odd0 takes no native XDP program: " in result.stderr
    assert "--generic allow" in result.stderr
    result = run("load", "--generic", "allow", "odd0")
    assert result.exit_code == 0
    assert "generic XDP" in result.stdout
    assert "this driver takes no native XDP program (" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["load", "nosuch"], 1, "error: there is no interface nosuch\n  interfaces here:"),
        (
            ["upgrade", "roce0"],
            1,
            "error: roce0 has no dataplane to upgrade\n  run: cwdp dataplane load roce0",
        ),
        (["load"], 2, "Missing argument 'IFNAME'"),
        (["load", "--port", "70000", "roce0"], 2, "70000 is not in the range 1<=x<=65535"),
        (["load", "--force", "roce0"], 2, "No such option"),
        (["explode"], 2, "No such command 'explode'"),
    ],
)
def test_what_a_person_gets_wrong(arguments: list[str], status: int, message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == status
    assert result.stdout == ""
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_foreign_program() -> None:
    obj = str(loader.OBJECT.with_name("lab_port.bpf.o"))
    subprocess.run(["ip", "link", "set", "roce0", "xdp", "obj", obj, "sec", "xdp.frags"], check=True)
    result = run("load", "roce0")
    assert result.exit_code == 1
    assert "another XDP program" in result.stderr
    assert "bpftool net show dev roce0" in result.stderr
