"""Hosts join, renew and are revoked, over a real nats-server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import nkeys
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, authority, bus_server, connect_as, host_bus, manager_bus
from fakes import until

from cwdp.agent import joining
from cwdp.agent.config import AgentConfig
from cwdp.agent.hostbus import first_keys
from cwdp.agent.joining import Renewal, join
from cwdp.errors import BusError, ConfigError, IdentityError
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import Desired, Event
from cwdp.shared.bus.sealing import HostSeal
from cwdp.shared.bus.session import RefusedError
from cwdp.shared.bus.subjects import up
from cwdp.shared.identity import joining as words
from cwdp.shared.identity import jwt
from cwdp.shared.identity.credential import Credential
from cwdp.shared.identity.joining import RENEW, Granted, RenewRequest
from manager.identity.probe_keys import ProbeKeys
from manager.identity.registry import BUCKET as REGISTRY
from manager.identity.registry import Registry
from manager.identity.service import Credentials
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")


class _Leader:
    """A manager as far as credentials go."""

    def __init__(self, url: str, path: Path, *, leads: bool = True, pod: str = POD) -> None:
        self.leads = leads
        self.notes: list[tuple[str, str]] = []
        self.bus = manager_bus(url, pod=pod)
        self.credentials = Credentials(
            authority(),
            self.bus,
            pod,
            leads=lambda: self.leads,
            note=self._note,
            keys=ProbeKeys(path / "probe_keys.json"),
            hosts=lambda: (),
            may_go_on=lambda: True,
            put_out=self.bus.documents.remove,
        )
        self.credentials.listen()

    def _note(self, host: str, kind: str, _detail: str, *, why: str | None = None) -> None:
        assert why is None
        self.notes.append((host, kind))

    async def __aenter__(self) -> Self:
        self.bus.start()
        await until(lambda: self.bus.connected)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.bus.close()


@asynccontextmanager
async def _fleet(path: Path) -> AsyncIterator[tuple[str, _Leader]]:
    async with bus_server(path) as server, _Leader(server.url, path) as leader:
        yield server.url, leader


async def _is_let_in(url: str, credential: Credential) -> bool:
    try:
        client = await connect_as(url, credential)
    except RefusedError:
        return False
    await client.close()
    return True


def _bus_of(url: str, credential: Credential) -> Bus:
    return Bus(url, credential, HostSeal(credential.name, credential.control), pod=POD, name=credential.name)


@asynchronous
async def test_a_host_joins_once_with_a_key_that_it_made(tmp_path: Path) -> None:
    async with _fleet(tmp_path) as (url, leader):
        invitation = words.read(await leader.credentials.invite("h1", by="root"))
        assert invitation.bus == url
        credential = await join(invitation)
        assert (credential.name, credential.pod) == ("h1", POD)
        assert await _is_let_in(url, credential)
        with pytest.raises(IdentityError, match="has been used"):
            await join(invitation)
        assert await _is_let_in(url, credential)
        assert [row["host"] for row in await leader.credentials.hosts()] == ["h1"]
        assert leader.notes == [("h1", "host_invited"), ("h1", "host_joined")]


@asynchronous
async def test_a_host_joins_by_whichever_bus_server_answers(tmp_path: Path) -> None:
    async with _fleet(tmp_path) as (url, leader):
        gone = [f"nats://127.0.0.1:{free_port()}" for _ in range(4)]
        for number in range(4):
            host = f"h{number}"
            text = await leader.credentials.invite(host, by="root", bus=",".join([*gone, url]))
            assert (await join(words.read(text))).name == host
        with pytest.raises(BusError, match="no bus of this fleet"):
            await join(words.read(await leader.credentials.invite("h9", by="root", bus=",".join(gone))))


@asynchronous
async def test_a_later_invitation_replaces_one_and_a_later_join_the_keys_of_before(tmp_path: Path) -> None:
    async with _fleet(tmp_path) as (url, leader):
        first = words.read(await leader.credentials.invite("h1", by="root"))
        second = words.read(await leader.credentials.invite("h1", by="root"))
        with pytest.raises(IdentityError, match="replaced"):
            await join(first)
        before = await join(second)
        now = await join(words.read(await leader.credentials.invite("h1", by="root")))
        await until(lambda: True)
        assert not await _is_let_in(url, before)
        assert await _is_let_in(url, now)


@asynchronous
async def test_an_invitation_is_withdrawn(tmp_path: Path) -> None:
    """Of a host that has not joined, and of one that has and was invited again."""
    async with _fleet(tmp_path) as (url, leader):
        credentials = leader.credentials

        async def listed() -> list[tuple[str, str]]:
            return [(row["host"], row["state"]) for row in await credentials.hosts()]

        first = words.read(await credentials.invite("h1", by="root"))
        stays = words.read(await credentials.invite("h2", by="root"))
        assert await listed() == [("h1", "invited"), ("h2", "invited")]
        assert await credentials.revoke("h1", by="root") == 0
        assert await listed() == [("h2", "invited")]
        with pytest.raises(IdentityError, match="replaced"):
            await join(first)
        with pytest.raises(ConfigError, match="none is invited"):
            await credentials.revoke("h1", by="root")
        joined = await join(stays)
        again = words.read(await credentials.invite("h2", by="root"))
        assert await listed() == [("h2", "invited"), ("h2", "joined")]
        assert await credentials.revoke("h2", by="root") == 1
        with pytest.raises(IdentityError, match="replaced"):
            await join(again)
        assert not await _is_let_in(url, joined)
        assert await listed() == []


@asynchronous
async def test_hosts_join_and_are_put_out_by_whichever_server_answers(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        down = {f"nats://127.0.0.1:{free_port()}" for _ in range(8)}
        async with _Leader(",".join([*down, server.url]), tmp_path) as leader:
            joined = await join(words.read(await leader.credentials.invite("h1", by="root")))
            assert await leader.credentials.revoke("h1", by="root") == 1
        assert not await _is_let_in(server.url, joined)


@asynchronous
async def test_who_has_joined_is_told_the_clusters_keys_and_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    async with _fleet(tmp_path) as (url, leader):
        credential = await join(words.read(await leader.credentials.invite("h1", by="root")))
        config = AgentConfig(host="h1", nics=["eth0"], nats=url, keys=str(path))
        keys = await first_keys(config, credential)
    assert keys == ProbeKeys(tmp_path / "probe_keys.json").wanted
    assert keys == await first_keys(config, credential)


@asynchronous
async def test_an_invitation_is_for_one_host(tmp_path: Path) -> None:
    async with _fleet(tmp_path) as (_, leader):
        mine = words.read(await leader.credentials.invite("h1", by="root"))
        other = words.read(await leader.credentials.invite("h2", by="root"))
        stolen = words.Invitation(
            **{name: getattr(mine, name) for name in mine.__struct_fields__ if name != "secret"},
            secret=other.secret,
        )
        with pytest.raises(IdentityError):
            await join(stolen)
        assert (await join(other)).name == "h2"


@pytest.mark.parametrize(
    ("first", "second"), [("h.1", "h_1"), ("h_1", "h.1"), ("a.b.c", "a.b_c"), ("ä", "ö")]
)
@asynchronous
async def test_a_host_that_would_be_another_on_the_bus_is_not_taken_in(
    tmp_path: Path, first: str, second: str
) -> None:
    async with _fleet(tmp_path) as (url, leader):

        async def is_refused() -> bool:
            with pytest.raises(ConfigError, match="one host on the bus") as caught:
                await leader.credentials.invite(second, by="root")
            return repr(first) in caught.value.message and "another name" in caught.value.hint

        invitation = words.read(await leader.credentials.invite(first, by="root"))
        assert await is_refused()
        joined = await join(invitation)
        assert await is_refused()
        with pytest.raises(ConfigError, match="no key"):
            await leader.credentials.revoke(second, by="root")
        assert [row["host"] for row in await leader.credentials.hosts()] == [first]
        assert await _is_let_in(url, joined)
        again = await join(words.read(await leader.credentials.invite(first, by="root")))
        assert await leader.credentials.revoke(first, by="root") == 2
        other = await join(words.read(await leader.credentials.invite(second, by="root")))
        assert [await _is_let_in(url, each) for each in (joined, again, other)] == [False, False, True]


@asynchronous
async def test_a_revoked_host_is_off_at_once_and_stays_off(tmp_path: Path) -> None:
    port = free_port()
    async with bus_server(tmp_path, port) as server, _Leader(server.url, tmp_path) as leader:
        url = server.url
        gone = await join(words.read(await leader.credentials.invite("gone", by="root")))
        stays = await join(words.read(await leader.credentials.invite("stays", by="root")))
        buses = [_bus_of(url, gone), _bus_of(url, stays)]
        for bus in buses:
            bus.start()
        try:
            await until(lambda: all(bus.connected for bus in buses))
            assert await leader.credentials.revoke("gone", by="root") == 1
            await until(lambda: not buses[0].connected and buses[0].counters["connect_refused"] > 0)
            assert buses[1].connected
            assert buses[1].counters["connected"] == 1
        finally:
            for bus in buses:
                await bus.close()
        with pytest.raises(ConfigError, match="no key"):
            await leader.credentials.revoke("gone", by="root")
    async with bus_server(tmp_path, port):
        assert not await _is_let_in(url, gone)
        assert await _is_let_in(url, stays)


@asynchronous
async def test_of_a_revoked_host_nothing_stays_on_the_bus_and_one_that_is_away_keeps_its_document(
    tmp_path: Path,
) -> None:
    async with _fleet(tmp_path) as (_, leader):
        for host in ("gone", "away"):
            await join(words.read(await leader.credentials.invite(host, by="root")))
            leader.bus.put(Desired(host=host, version=1, epoch=1, probes=[]))
        writer = leader.bus.documents
        await until(lambda: writer.unwritten == 0)
        client = leader.bus.session
        assert client is not None
        await leader.credentials.revoke("gone", by="root")
        assert await writer.read(client, "gone") is None
        assert writer.is_removed("gone")
        assert await writer.read(client, "away") is not None
        registry = await client.jetstream().key_value(REGISTRY)
        assert sorted(key for key in await registry.keys() if key.endswith((".gone", ".away"))) == [
            f"invited.{POD}.away",
            f"signed.{POD}.away",
        ]


@asynchronous
async def test_what_cannot_be_removed_yet_can_be_revoked_again(tmp_path: Path) -> None:
    async with _fleet(tmp_path) as (_, leader):
        await join(words.read(await leader.credentials.invite("gone", by="root")))
        put_out = leader.credentials._put_out

        async def fails(_host: str) -> None:
            raise BusError("it is on the bus still")

        leader.credentials._put_out = fails
        with pytest.raises(BusError, match="still"):
            await leader.credentials.revoke("gone", by="root")
        leader.credentials._put_out = put_out
        assert await leader.credentials.revoke("gone", by="root") == 1
        with pytest.raises(ConfigError, match="no key"):
            await leader.credentials.revoke("gone", by="root")


@asynchronous
async def test_a_server_that_lost_what_it_held_is_told_by_the_leader(tmp_path: Path) -> None:
    port = free_port()
    async with bus_server(tmp_path, port) as server, _Leader(server.url, tmp_path) as leader:
        gone = await join(words.read(await leader.credentials.invite("gone", by="root")))
        await leader.credentials.revoke("gone", by="root")
    for each in (tmp_path / "accounts").glob("*.jwt"):
        each.unlink()
    async with bus_server(tmp_path, port) as server, _Leader(server.url, tmp_path) as leader:
        telling = asyncio.create_task(leader.credentials.run())
        try:
            for _ in range(100):
                if not await _is_let_in(server.url, gone):
                    break
                await asyncio.sleep(0.1)
            assert not await _is_let_in(server.url, gone)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


@asynchronous
async def test_a_credential_is_renewed_with_another_key_and_nothing_said_is_lost(tmp_path: Path) -> None:
    got: list[Event] = []
    async with bus_server(tmp_path / "bus") as server:
        leader = _Leader(server.url, tmp_path)
        leader.bus.subscribe(up(POD, "*", "event"), Event, got.append)
        async with leader:
            path = tmp_path / "h1.creds"
            first = await join(words.read(await leader.credentials.invite("h1", by="root")))
            bus = _bus_of(server.url, first)
            bus.start()
            try:
                await until(lambda: bus.connected)

                async def ask(subject: str, question: RenewRequest) -> Granted:
                    return await bus.ask(subject, RENEW, question, Granted)

                used: list[Credential] = []
                renewal = Renewal(
                    "h1", first, path, ask=ask, use=lambda found: (used.append(found), bus.use(found))
                )
                for number in range(60):
                    assert bus.publish(up(POD, "h1", "event"), _event(number))
                    if number in (20, 40):
                        await renewal.renew(jwt.new_key(nkeys.PREFIX_BYTE_USER))
                    await asyncio.sleep(0.01)
                await until(lambda: {event.detail for event in got} >= {str(n) for n in range(60)})
                keys = {credential.seed for credential in (first, *used)}
                assert len(keys) == 3
                assert bus.counters["connected"] == 1
                assert await leader.credentials.revoke("h1", by="root") == 3
                await until(lambda: not bus.connected)
            finally:
                await bus.close()


@asynchronous
async def test_a_host_renews_its_own_credential_only(tmp_path: Path) -> None:
    async with _fleet(tmp_path) as (url, _):
        other = authority().host_credential("h2")
        strangers = type(authority()).new().host_credential("h1")
        bus = host_bus(url, "h1")
        bus.start()
        try:
            await until(lambda: bus.connected)
            for token in (other.token, strangers.token, "", "a.b.c", other.token[:-3]):
                request = RenewRequest(
                    host="h1", public_key=jwt.public_key(jwt.new_key(nkeys.PREFIX_BYTE_USER)), token=token
                )
                granted = await bus.ask(up(POD, "h1", RENEW), RENEW, request, Granted)
                assert granted.refused
                assert not granted.token
        finally:
            await bus.close()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "ANSWER_S", 0.3)


@pytest.mark.usefixtures("_impatient")
@asynchronous
async def test_only_the_leader_takes_hosts_in(tmp_path: Path) -> None:
    async with _fleet(tmp_path) as (url, leader), _Leader(url, tmp_path / "other", leads=False):
        invitation = words.read(await leader.credentials.invite("h1", by="root"))
        leader.leads = False
        with pytest.raises(BusError, match="no leader answers"):
            await join(invitation)
        leader.leads = True
        assert (await join(invitation)).name == "h1"


@asynchronous
async def test_a_host_is_of_one_pod(tmp_path: Path) -> None:
    """What leaders sign is for a name: a second host of it would follow what is meant for the first."""
    async with _fleet(tmp_path) as (url, leader), _Leader(url, tmp_path / "other", pod="p2") as other:
        invitation = words.read(await leader.credentials.invite("h1", by="root"))
        with pytest.raises(ConfigError, match="of the pod 'main' already"):
            await other.credentials.invite("h1", by="root")
        await leader.credentials.revoke("h1", by="root")
        theirs = words.read(await other.credentials.invite("h1", by="root"))
        with pytest.raises(IdentityError, match="joined the pod 'p2'"):
            await join(invitation)
        assert (await join(theirs)).name == "h1"
        with pytest.raises(ConfigError, match="of the pod 'p2' already"):
            await leader.credentials.invite("h1", by="root")
        words.read(await leader.credentials.invite("h10", by="root"))
        await other.credentials.revoke("h1", by="root")
        words.read(await leader.credentials.invite("h1", by="root"))


@asynchronous
async def test_a_host_that_was_invited_by_two_pods_at_once_joins_one(tmp_path: Path) -> None:
    async with _fleet(tmp_path) as (url, leader), _Leader(url, tmp_path / "other", pod="p2") as other:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Registry, "pod_elsewhere", _nowhere)
            first, second = [
                words.read(await each.credentials.invite("h1", by="root")) for each in (leader, other)
            ]
        for invitation in (first, second):
            with pytest.raises(IdentityError, match="a host of this name has joined the pod"):
                await join(invitation)
        await other.credentials.revoke("h1", by="root")
        assert (await join(first)).name == "h1"


async def _nowhere(*_: object) -> None:
    """As each of two that look at the same time."""


@asynchronous
async def test_invitations_end(tmp_path: Path) -> None:
    async with _fleet(tmp_path) as (_, leader):
        invitation = words.read(await leader.credentials.invite("h1", by="root", hours=1 / 3_600))
        await asyncio.sleep(max(0.0, invitation.credential.expires_s - time.time()) + 1.1)
        with pytest.raises(IdentityError, match="expired"):
            await join(invitation)
        for hours in (0, -1, 10_000, float("nan")):
            with pytest.raises(ConfigError):
                await leader.credentials.invite("h1", by="root", hours=hours)


@pytest.mark.parametrize(
    "word", ["", "cwdp1-", "cwdp1-!!", "cwdp1-" + "A" * 100, "cwdp2-AAAA", "hello world"]
)
def test_what_is_no_token_is_told(word: str) -> None:
    with pytest.raises(ConfigError, match="no token"):
        words.read(word)


def _event(number: int) -> Event:
    return Event(host="h1", local_ns=1, kind="link_up", nic=None, detail=str(number))
