"""`cwdp fabric` and `cwdp path`: what they ask, what they show, and what they refuse."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fabric_fakes import FakeClos
from rich.console import Console

from cwdp.cli import main
from cwdp.cli.client import ManagerClient
from cwdp.cli.cluster import fabric as cli
from cwdp.cli.cluster import path as path_cli
from cwdp.shared.bus.messages import Hello, Nic
from manager.fabric.discovery import Discovery
from manager.hosts.members import Members
from manager.overrides.steering import SteerTable
from manager.queue_pairs.traffic import Traffic
from manager.view import fabric_views


def discovered(clos: FakeClos) -> Discovery:
    """What a manager comes to know of a fabric in arithmetic."""
    members = Members()
    for host, nics in clos.hosts.items():
        described = [
            Nic(
                ifname=nic.ifname,
                mac="",
                ipv4=nic.address if clos.version == 4 else None,
                ipv6=nic.address if clos.version == 6 else None,
                carrier=True,
                mode="native",
            )
            for nic in nics
        ]
        hello = Hello(
            host=host,
            boot_id="b",
            version="",
            dataplane_tag="",
            nics=described,
            desired_version=0,
            key_ids=[],
        )
        members.hear(hello, 0.0)
    discovery = Discovery(members, Traffic(members), SteerTable(None))
    for host in clos.hosts:
        discovery.hear(clos.report(host, 24))
    discovery.learn(0.0)
    return discovery


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the manager answers, by path; tests set it."""
    answers: dict[str, Any] = {}

    def get(_client: object, path: str, query: dict[str, str] | None = None) -> Any:
        asked.append((path, query))
        answer = answers[path]
        return answer(**query) if callable(answer) and query is not None else answer

    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr(ManagerClient, "get", get)
    return answers


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--manager", "unix:///nowhere"])


def shown(renderable: Any) -> str:
    console = Console(width=80, record=True, file=None, highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


FABRICS = [
    FakeClos(),
    FakeClos(leaves=4, pods=2),
    FakeClos(version=6, leaves=3, moved={"h2/nic0": 2}),
    FakeClos(silent={f"10.254.3.{i}" for i in range(1, 5)}),
    FakeClos(answer=lambda: False, answers_at_end=False),
]


@pytest.mark.parametrize(
    "clos", FABRICS, ids=["two tiers", "three tiers", "IPv6", "silent spines", "no answer"]
)
def test_tables_fit_eighty_columns_and_answers_are_json(clos: FakeClos) -> None:
    discovery = discovered(clos)
    fabric = json.loads(json.dumps(fabric_views.fabric(discovery)))
    paths = json.loads(json.dumps(fabric_views.path(discovery, "h1", "h5")))
    for text in (shown(cli._fabric(fabric, with_links=True)), shown(path_cli._paths(paths))):
        assert max(len(line) for line in text.splitlines()) <= 80
    assert sum(len(pair["ports"]) for pair in paths["pairs"]) == 24


def test_the_fabric_is_shown(answers: dict[str, Any]) -> None:
    answers["/v1/fabric"] = fabric_views.fabric(discovered(FakeClos()))
    text = run("fabric").output
    assert "8 NICs, 6 switches (2 of tier 1, 4 of tier 2), 8 links between them" in text
    assert "h1/nic0 h2/nic0 h3/nic0 h4/nic0" in text
    assert "suspected" not in text
    assert text.count("10.254.3.1") == 1
    assert run("fabric", "--links").output.count("10.254.3.1") == 3
    assert json.loads(run("fabric", "--json").output) == answers["/v1/fabric"]


def test_what_is_wrong_is_shown(answers: dict[str, Any]) -> None:
    answer = fabric_views.fabric(discovered(FakeClos(leaves=3, moved={"h2/nic0": 2})))
    answers["/v1/fabric"] = answer | {"set_aside": ["h7"]}
    text = run("fabric").output
    assert "h2/nic0" in text.partition("suspected")[2]
    assert "not believed, as others contradict them: h7" in text


def test_nothing_known_yet_is_shown(answers: dict[str, Any]) -> None:
    members = Members()
    answers["/v1/fabric"] = fabric_views.fabric(Discovery(members, Traffic(members), SteerTable(None)))
    assert "0 NICs, 0 switches (none known)" in run("fabric").output


def test_paths_are_shown_with_the_confidence(answers: dict[str, Any]) -> None:
    discovery = discovered(FakeClos())
    discovery.in_use = {("h1/nic0", "10.2.0.1"): {50_003: None}}
    answers["/v1/path"] = lambda src, dst: fabric_views.path(discovery, src, dst)
    text = run("path", "h1", "h5/nic0").output
    assert "h1/nic0 > h5/nic0 (10.2.0.1): 4 of 4 known paths between the leaves" in text
    assert "10.254.1.1 > 10.254.3.1 > 10.254.1.2" in text
    assert "50003*" in text
    [pair] = json.loads(run("path", "h1/nic0", "h5", "--json").output)["pairs"]
    assert pair["confidence"] > 0.99
    assert len(pair["ports"]) == pair["ports_traced"] == 24


def test_silent_switches_are_question_marks(answers: dict[str, Any]) -> None:
    discovery = discovered(FakeClos(silent={f"10.254.3.{i}" for i in range(1, 5)}))
    answers["/v1/path"] = lambda src, dst: fabric_views.path(discovery, src, dst)
    text = run("path", "h1", "h5").output
    assert "10.254.1.1 > ? > 10.254.1.2" in text
    assert "no path is known whole" in text


def test_an_unknown_pair_is_refused_with_the_next_step(answers: dict[str, Any]) -> None:
    answers["/v1/path"] = {"pairs": []}
    result = run("path", "h1", "nowhere")
    assert result.exit_code == 1
    assert "no path is known from 'h1' to 'nowhere'" in result.output
    assert "cwdp host" in result.output
