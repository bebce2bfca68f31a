"""Configuration files and keys: what is wrong is named with its file, its key, and the next step."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cwdp.agent.config import AgentConfig, InterfaceConfig, read_config
from cwdp.agent.service import run
from cwdp.cli import main
from cwdp.dataplane.loading import loader
from cwdp.errors import ConfigError
from cwdp.shared.bus.servers import server_urls
from cwdp.shared.identity.probe_keys import read_keys
from cwdp.shared.testclock import TestClock
from manager.config import ManagerConfig
from manager.service import Manager

SECRET = "00112233445566778899aabbccddeeff"
KEY = f'[[key]]\nid = {{}}\nsecret = "{SECRET}"\n'
TOP_KEYS = "nics, nats, host, credential, keys, probe_port, pulse_interval_ms, burst_gap_ms, observe_only, generic, go_back, congestion, verbs, nccl, uprobes, tcp, flows, ib, interface, roles, test_clock"


def _file(tmp_path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path = tmp_path / "a.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_a_small_config_is_enough(tmp_path: Path) -> None:
    config = read_config(_file(tmp_path, 'nics = ["eth0"]'))
    assert (config.nics, config.probe_port, config.test_clock) == (["eth0"], 4791, None)
    assert config.host
    assert config.settings() == loader.Settings()


def test_everything_that_can_be_set(tmp_path: Path) -> None:
    text = (
        'nics = ["a", "b"]\nnats = "nats://n:1"\nhost = "h"\nkeys = "/k"\nprobe_port = 5000\n'
        f'[test_clock]\nfile = "{tmp_path}/h.npz"\n'
    )
    TestClock.constant(5, -7, -50_000.0).save(tmp_path / "h.npz")
    config = read_config(_file(tmp_path, text))
    assert config.host == "h"
    settings = config.settings()
    assert settings.probe_port == 5000
    assert settings.test_clock is not None
    assert (settings.test_clock.base_ns, settings.test_clock.offset_ns) == (5, -7)
    (tmp_path / "h.npz").unlink()
    with pytest.raises(ConfigError, match=r"h\.npz is not the clock of a host of a lab"):
        config.settings()


def test_a_host_with_infiniband_alone_names_no_interface(tmp_path: Path) -> None:
    for section in ("[ib]\nread = true", "[verbs]\nlids = true"):
        assert read_config(_file(tmp_path, f"nics = []\n{section}\n")).nics == []


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "missing required field `nics`", f"add it; keys of the top level: {TOP_KEYS}"),
        ("nics = []", "nics names no interface", "[ib] read = true"),
        ("nics = []\n[ib]\nread = false", "nics names no interface", "[ib] read = true"),
        ("nics = []\n[verbs]\nlids = false", "nics names no interface", "[verbs] lids = true"),
        ("nics = []\n[ib]\nread = 1", "at `$.ib.read`", "keys of [ib]: read, device, port"),
        ('nics = "eth0"', "Expected `array`, got `str` - at `$.nics`", "correct the value"),
        ('nics = ["e"]\n[uprobes]\ncgroups = ["train"]', "at `$.uprobes.cgroups[0]`", "correct the value"),
        (
            'nics = ["e"]\n[uprobes]\ncgroups = ["/a/../.."]',
            "at `$.uprobes.cgroups[0]`",
            "correct the value",
        ),
        ("nics = [3]", "Expected `str`, got `int` - at `$.nics[0]`", "correct the value"),
        ('nics = ["e"]\nnick = 1', "unknown field `nick`", f"known keys of the top level: {TOP_KEYS}"),
        ('nics = ["e"]\nprobe_port = 0', ">= 1 - at `$.probe_port`", TOP_KEYS),
        ('nics = ["e"]\nprobe_port = 65536', "<= 65535 - at `$.probe_port`", TOP_KEYS),
        ('nics = ["e"]\nprobe_port = "x"', "Expected `int`, got `str`", TOP_KEYS),
        (
            'nics = ["e"]\n[test_clock]\nbase = 1',
            "at `$.test_clock`",
            "keys of [test_clock]: file",
        ),
        ('nics = ["e"]\n[test_clock]\nfile = 1', "at `$.test_clock.file`", "keys of [test_clock]: file"),
        ('nics = ["e"]\nhost = "a/b"', "at `$.host`", "correct the value"),
        ('nics = ["e"]\nhost = ""', "at `$.host`", "correct the value"),
        ('nics = ["e", "f", "e"]', "names an interface twice: ['e', 'f', 'e']", "name each one once"),
        ("nics = ", "is not valid TOML", "correct that line"),
        (b"nics = '\xff'", "is not a text file", "UTF-8"),
    ],
)
def test_a_wrong_agent_config(tmp_path: Path, text: str | bytes, message: str, hint: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert caught.value.exit_status == 2
    assert str(path) in caught.value.message
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("name", ["none.toml", "."])
def test_a_config_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot read") as caught:
        read_config(tmp_path / name)
    assert "--config" in caught.value.hint


def test_one_key_and_two(tmp_path: Path) -> None:
    one = read_keys(_file(tmp_path, "send = 4\n" + KEY.format(4)))
    assert one.secrets() == {4: bytes.fromhex(SECRET)}
    two = read_keys(_file(tmp_path, "send = 4\n" + KEY.format(4) + KEY.format(5)))
    assert sorted(two.secrets()) == [4, 5]
    assert two.send == 4


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("send = 1\nkey = []", "length >= 1", "keys of [key]: id, secret"),
        ("send = 1\n" + KEY.format(1) + KEY.format(2) + KEY.format(3), "length <= 2", "keys of [key]"),
        ("send = 1\n" + KEY.format(256), "<= 255 - at `$.key[0].id`", "keys of [key]: id, secret"),
        ('send = 1\n[[key]]\nid = 1\nsecret = "abc"', "$.key[0].secret", "keys of [key]: id, secret"),
        ("send = 1\n[[key]]\nid = 1", "missing required field `secret`", "add it; keys of [key]"),
        (KEY.format(1), "missing required field `send`", "keys of the top level: send, key"),
        ("send = 2\n" + KEY.format(1), "send = 2 names no key of this file", "keys here: [1]"),
        ("send = 2\n" + KEY.format(2) + KEY.format(4), "[2, 4] are both even or both odd", "one higher"),
        ("send = 2\n" + KEY.format(2) + KEY.format(2), "both even or both odd", "one higher"),
    ],
)
def test_wrong_keys(tmp_path: Path, text: str, message: str, hint: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_keys(path)
    assert caught.value.exit_status == 2
    assert str(path) in caught.value.message
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_keys_that_others_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    path = _file(tmp_path, "send = 1\n" + KEY.format(1), mode)
    with pytest.raises(ConfigError, match="can be read by others") as caught:
        read_keys(path)
    assert caught.value.hint == f"run: chmod 600 {path}"


def test_an_error_never_shows_a_secret(tmp_path: Path) -> None:
    path = _file(tmp_path, f'send = 1\n[[key]]\nid = 1\nsecret = "{SECRET}0"')
    with pytest.raises(ConfigError) as caught:
        read_keys(path)
    assert not re.search(SECRET, str(caught.value))


@pytest.mark.parametrize("url", ["nats://127.0.0.1:4222", "tls://bus.example", "nats://[::1]:4222"])
def test_urls_of_a_bus(url: str) -> None:
    assert server_urls(url) == [url]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "bus:4222",
        "http://bus:4222",
        "nats://",
        "nats://h:x",
        "nats://h:0",
        "nats://h:99999",
        "nats://[::1:4",
    ],
)
def test_urls_of_no_bus_stop_both_services_at_their_start(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="no bus URL") as caught:
        run(AgentConfig(nics=["eth0"], nats=url))
    assert "nats://" in caught.value.hint
    with pytest.raises(ConfigError, match="no bus URL"):
        Manager(ManagerConfig(nats=url, state_dir=str(tmp_path)))


UD = 'nics = ["e"]\n[interface.{}]\n{}'


def test_a_nic_may_be_probed_from_by_ud_queue_pairs(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(UD.format("e", 'transport = "ud"\nrdma_device = "mlx5_0"\ngid_index = 3'))
    config = read_config(path)
    assert config.ud_nics == {"e": InterfaceConfig(transport="ud", rdma_device="mlx5_0", gid_index=3)}
    assert config.xdp_nics == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (UD.format("f", 'transport = "ud"'), r"\[interface.f\] is of no interface in nics"),
        (UD.format("e", "gid_index = 3"), r"\[interface.e\] names an RDMA device without using it"),
        (UD.format("e", 'transport = "UD"'), "Invalid enum value 'UD'"),
        (UD.format("e", 'transport = "ud"\ngid = 3'), "unknown field `gid`"),
        (UD.format("e", 'transport = "ud"\nrdma_port = 0'), "Expected `int` >= 1"),
    ],
)
def test_a_wrong_interface_section(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(path)
    assert caught.value.hint


def test_the_command_says_it_on_standard_error_with_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cwdp.cli.agent.require_privileges", lambda: None)
    path = _file(tmp_path, "nic = 1")
    result = CliRunner().invoke(main, ["agent", "run", "--config", str(path)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {path}: Object contains unknown field `nic`\n  known keys")
