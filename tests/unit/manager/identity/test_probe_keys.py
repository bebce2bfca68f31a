"""The leader's rotation of the cluster's probe keys, with hosts that hear of it at any pace."""

from pathlib import Path
from random import Random

import pytest

from cwdp.errors import ManagerError
from cwdp.shared.identity.probe_keys import KeyFile, read_keys, write_keys
from manager.identity.probe_keys import ProbeKeys


class _Host:
    """What a host has, and whether it accepts what another signs with."""

    def __init__(self, keys: KeyFile) -> None:
        self.keys = keys

    def accepts(self, other: "_Host") -> bool:
        return other.keys.secrets()[other.keys.send] in self.keys.secrets().values()


@pytest.mark.parametrize("seed", range(10))
def test_no_host_ever_refuses_anothers_probe(tmp_path: Path, seed: int) -> None:
    draw, keys = Random(seed), ProbeKeys(tmp_path / "keys.json")
    hosts = {f"h{number}": _Host(keys.wanted) for number in range(draw.randint(1, 9))}
    stages = []
    for rotation in range(5):
        keys.rotate()
        if draw.random() < 0.5:
            keys.rotate()
        while keys.stage != "settled" or any(host.keys != keys.wanted for host in hosts.values()):
            name = draw.choice(list(hosts))
            if not keys.hear(name, hosts[name].keys.fingerprint):
                hosts[name].keys = keys.wanted
            stages.append(keys.step(hosts))
            assert all(one.accepts(other) for one in hosts.values() for other in hosts.values())
        assert len(keys.wanted.key) == 1, rotation
    assert {"introduced", "switched", "settled"} >= {stage for stage in stages if stage}
    assert keys.wanted.send >= 6


def test_a_rotation_waits_for_hosts_that_are_up_and_for_no_others(tmp_path: Path) -> None:
    keys = ProbeKeys(tmp_path / "keys.json")
    first = keys.wanted
    keys.rotate()
    keys.hear("up", first.fingerprint)
    assert keys.step(["up"]) is None
    assert not keys.hear("away", first.fingerprint)
    assert keys.hear("up", keys.wanted.fingerprint)
    assert keys.step(["up"]) == "switched"
    assert keys.step(["up"]) is None


def test_who_was_away_when_the_others_began_to_sign_with_a_new_key_is_not_to_be_probed(
    tmp_path: Path,
) -> None:
    keys = ProbeKeys(tmp_path / "keys.json")
    away = keys.wanted
    assert keys.signed_with == {away.send}
    keys.rotate()
    assert keys.signed_with <= {key.id for key in away.key}
    keys.hear("up", keys.wanted.fingerprint)
    assert keys.step(["up"]) == "switched"
    assert keys.signed_with.isdisjoint(key.id for key in away.key)
    keys.hear("up", keys.wanted.fingerprint)
    assert keys.step(["up"]) == "settled"
    assert keys.signed_with == {keys.wanted.send}


def test_what_was_decided_outlives_the_manager_and_goes_to_the_next(tmp_path: Path) -> None:
    keys = ProbeKeys(tmp_path / "a.json")
    keys.rotate()
    again, other = ProbeKeys(tmp_path / "a.json"), ProbeKeys(tmp_path / "b.json")
    assert (again.wanted, again.stage) == (keys.wanted, "introduced")
    before = other.revision
    other.load(keys.dump())
    assert (other.wanted, other.stage) == (keys.wanted, "introduced")
    assert other.revision > before
    assert (tmp_path / "a.json").stat().st_mode & 0o077 == 0
    with pytest.raises(ManagerError):
        other.load(b"{}")


def test_ids_go_round_and_alternate(tmp_path: Path) -> None:
    keys, path = ProbeKeys(tmp_path / "keys.json"), tmp_path / "keys.toml"
    for _ in range(300):
        keys.rotate()
        for _ in range(2):
            keys.hear("h", keys.wanted.fingerprint)
            write_keys(path, keys.wanted)
            assert read_keys(path) == keys.wanted
            keys.step(["h"])
        assert keys.stage == "settled"


def test_a_rotation_that_came_too_late_is_asked_for_again(tmp_path: Path) -> None:
    """Somebody else's change is on the bus in its place."""
    mine, theirs = ProbeKeys(tmp_path / "mine.json"), ProbeKeys(tmp_path / "theirs.json")
    mine.load(theirs.dump())
    theirs.rotate()
    mine.rotate()
    mine.load(theirs.dump())
    assert mine.dump() == theirs.dump()
    mine.ask_again()
    theirs.rotate()
    assert mine.dump() == theirs.dump(), "once more after the one that is under way"
    mine.kept(mine.revision - 1)
    revision = mine.revision
    mine.ask_again()
    assert mine.revision > revision
    mine.kept(mine.revision)
    revision = mine.revision
    mine.ask_again()
    assert mine.revision == revision


def test_what_goes_on_by_itself_is_not_asked_for_again(tmp_path: Path) -> None:
    keys = ProbeKeys(tmp_path / "keys.json")
    keys.rotate()
    keys.rotate()
    keys.kept(keys.revision)
    while {key.id for key in keys.wanted.key} != {2, 3}:
        keys.step([])
    revision = keys.revision
    keys.ask_again()
    assert keys.revision == revision
