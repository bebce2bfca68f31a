"""Services of TCP: what can be named, and what is refused."""

from pathlib import Path

import pytest

from cwdp.agent.config import read_config
from cwdp.agent.tcp import services as module
from cwdp.agent.tcp.services import Service, refused_ports, services
from cwdp.errors import ConfigError

NICS = 'nics = ["eth0"]\nnats = "nats://b1:4300,tls://b2"\n'


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "a.toml"
    path.write_text(NICS + text)
    return path


def test_services_by_port_cgroup_and_pid(tmp_path: Path) -> None:
    text = (
        '[tcp.service.training]\nports = [5201, "5202", "10000-10099"]\n'
        '[tcp.service.storage]\ncgroups = ["/system.slice/lustre.service", "/kubepods.slice/*"]\n'
        "[tcp.service.one]\npids = [4711]\n"
    )
    config = read_config(_file(tmp_path, text))
    assert config.tcp is not None
    assert services(config.tcp, config.nats) == [
        Service(name="training", ports=[(5201, 5201), (5202, 5202), (10_000, 10_099)]),
        Service(name="storage", cgroups=["/system.slice/lustre.service", "/kubepods.slice/*"]),
        Service(name="one", pids=[4711]),
    ]


def test_nothing_is_named_where_there_is_no_such_section(tmp_path: Path) -> None:
    assert read_config(_file(tmp_path, "")).tcp is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("[tcp]", "missing required field `service`"),
        ("[tcp.service]", "length >= 1"),
        ("[tcp.service.x]", r"\[tcp\.service\.x\] names no connections"),
        ("[tcp.service.x]\nports = [0]", "0 is no port"),
        ("[tcp.service.x]\nports = [65536]", "65536 is no port"),
        ('[tcp.service.x]\nports = ["9-8"]', "'9-8' is no port and no range"),
        ('[tcp.service.x]\nports = ["http"]', "'http' is no port and no range"),
        ("[tcp.service.x]\nports = [1.5]", "int | str"),
        ("[tcp.service.x]\nports = [22]", "port 22 is ssh's, which is never touched"),
        ('[tcp.service.x]\nports = ["1-1000"]', "port 22 is ssh's, which is never touched"),
        ("[tcp.service.x]\nports = [4300]", "port 4300 is the bus's, which is never touched"),
        ("[tcp.service.x]\nports = [4222]", "port 4222 is the bus's, which is never touched"),
        ("[tcp.service.x]\nports = [9465]", "port 9465 is cwdp's own, which is never touched"),
        ('[tcp.service.x]\ncgroups = ["x.service"]', "is no path of a cgroup"),
        ('[tcp.service.x]\ncgroups = ["/a/../b"]', "is no path of a cgroup"),
        ('[tcp.service.x]\ncgroups = ["/a/**"]', "is no path of a cgroup"),
        ('[tcp.service.x]\ncgroups = ["/"]', "every connection of the host"),
        ('[tcp.service.x]\ncgroups = ["/system.slice/ssh.service"]', "is ssh's, which is never touched"),
        ('[tcp.service.x]\ncgroups = ["/system.slice/system-sshd.slice/sshd@1.service"]', "is ssh's"),
        ("[tcp.service.x]\npids = [1]", ">= 2"),
        ("[tcp.service.x]\npids = [-5]", ">= 2"),
        ("[tcp.service.x]\nport = [5201]", "unknown field `port`"),
        ('[tcp.service."a b"]\nports = [5201]', "'a b' is no name for a service"),
    ],
)
def test_what_cannot_be_named(tmp_path: Path, section: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(_file(tmp_path, section))
    assert str(tmp_path) in caught.value.message
    assert caught.value.hint


def test_there_is_a_limit_to_ranges(tmp_path: Path) -> None:
    names = "".join(
        f"[tcp.service.s{n}]\nports = {list(range(10_000 + 64 * n, 10_064 + 64 * n))}\n" for n in range(5)
    )
    with pytest.raises(ConfigError, match="names 320 ports and ranges"):
        read_config(_file(tmp_path, names))
    assert module.MOST_RANGES == 256


def test_the_buss_ports_are_those_of_its_urls() -> None:
    assert refused_ports("nats://b1:4300,tls://b2") == {
        22: "ssh's",
        4222: "the bus's",
        4300: "the bus's",
        6222: "cwdp's own",
        9464: "cwdp's own",
        9465: "cwdp's own",
    }
