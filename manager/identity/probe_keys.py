"""The fleet's probe keys as its leaders decide them, and their rotation without losing a probe.

A new key is first accepted everywhere, then signed with everywhere, and only then is the old one dropped. Each step waits
for all hosts that are up. A host that was away is told when it asks.
"""

import secrets
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from cwdp.errors import ManagerError
from cwdp.shared.identity.credential import write_secret
from cwdp.shared.identity.probe_keys import Key, KeyFile

KEY_BYTES, MOST_IDS = 16, 256

Stage = Literal["settled", "introduced", "switched"]


class _State(Struct, frozen=True, kw_only=True):
    """What is kept. `again` is set where another rotation is to follow the present one."""

    keys: KeyFile
    stage: Stage = "settled"
    again: bool = False


class ProbeKeys:
    """The keys, kept in a file beside the manager's state and, by who leads, on the bus.

    Args:
        path: the file.

    Attributes:
        revision: another one after each change.

    Raises:
        ManagerError: there is a file and it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.revision = 0
        self._path = path
        self._has: dict[str, str] = {}
        self._asked: int | None = None
        self._state = _State(keys=KeyFile(send=1, key=[_new_key(1)]))
        if path.exists():
            self.load(path.read_bytes())
        else:
            self._write()

    @property
    def wanted(self) -> KeyFile:
        """What each host should have now."""
        return self._state.keys

    @property
    def signed_with(self) -> frozenset[int]:
        """The number of the key that all are to sign with: who was away while that was decided cannot tell by it."""
        return frozenset({self.wanted.send})

    @property
    def stage(self) -> Stage:
        """How far a rotation is; `settled` without one."""
        return self._state.stage

    def hear(self, host: str, fingerprint: str) -> bool:
        """Take in what a host has; whether that is what it should have."""
        self._has[host] = fingerprint
        return fingerprint == self.wanted.fingerprint

    def forget(self, host: str) -> None:
        """Drop a host that has left for good."""
        self._has.pop(host, None)

    def are_with(self, hosts: Collection[str]) -> bool:
        """Whether all of these hosts have what they should."""
        fingerprint = self.wanted.fingerprint
        return all(self._has.get(host) == fingerprint for host in hosts)

    def rotate(self) -> None:
        """Begin to replace the key that is signed with; once more where that is under way."""
        if self._state.stage == "settled":
            self._begin()
        else:
            self._become(msgspec.structs.replace(self._state, again=True))
        self._asked = self.revision

    def _begin(self) -> None:
        old = self.wanted.key[0]
        keys = KeyFile(send=old.id, key=[old, _new_key((old.id + 1) % MOST_IDS)])
        self._become(_State(keys=keys, stage="introduced"))

    def step(self, hosts: Collection[str]) -> Stage | None:
        """Go on with a rotation where all of these hosts have what they should; the stage that it has come to."""
        if self._state.stage == "settled" or not self.are_with(hosts):
            return None
        old, new = self.wanted.key
        if self._state.stage == "introduced":
            keys = KeyFile(send=new.id, key=[old, new])
            self._become(msgspec.structs.replace(self._state, keys=keys, stage="switched"))
            return "switched"
        again = self._state.again
        self._become(_State(keys=KeyFile(send=new.id, key=[new])))
        if again:
            self._begin()
        return self._state.stage

    def kept(self, revision: int) -> None:
        """They are on the bus as they were at a revision."""
        if self._asked is not None and self._asked <= revision:
            self._asked = None

    def ask_again(self) -> None:
        """Rotate them once more, where a rotation that was asked for here did not come onto the bus."""
        if self._asked is not None:
            self.rotate()

    def dump(self) -> bytes:
        """All that must be kept."""
        return msgspec.json.encode(self._state)

    def load(self, data: bytes) -> None:
        """Have what was kept.

        Raises:
            ManagerError: it is none of that.
        """
        try:
            state = msgspec.json.decode(data, type=_State)
        except msgspec.DecodeError as error:
            raise ManagerError(f"the cluster's keys cannot be read: {error}", f"see {self._path}") from error
        if state != self._state:
            self._become(state)

    def _become(self, state: _State) -> None:
        self._state = state
        self.revision += 1
        self._write()

    def _write(self) -> None:
        write_secret(self._path, self.dump().decode())


def _new_key(number: int) -> Key:
    return Key(id=number, secret=secrets.token_hex(KEY_BYTES))
