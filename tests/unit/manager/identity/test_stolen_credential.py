"""Who has stolen one host's credential can lie about that host, and can do nothing else: tried on a real nats-server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import (
    POD,
    bus_server,
    connect_as,
    connect_as_manager,
    credential_of,
    host_bus,
    leader_seal,
    manager_bus,
)
from fakes import until
from nats.aio.client import Client

from cwdp.agent.fence import Fence
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.desired import stored
from cwdp.shared.bus.messages import DESIRED_BUCKET, Desired, Event, SteerQp, encode
from cwdp.shared.bus.packing import packed
from cwdp.shared.bus.subjects import document_key, down, up

pytestmark = pytest.mark.needs("nats-server")

STREAM = f"KV_{DESIRED_BUCKET}"
DOCUMENT = f"$JS.API.DIRECT.GET.{STREAM}.$KV.{DESIRED_BUCKET}"
OWN_DOCUMENT = f"{DOCUMENT}.{POD}.h1"


def document_of(host: str, version: int = 1) -> Desired:
    steer = [SteerQp(nic="eth0", dst_addr=f"fd00::{host[1:]}", qpn=7, sport=50_000, backup_sport=None)]
    return Desired(host=host, epoch=3, version=version, probes=[], steer=steer)


def event_of(host: str) -> Event:
    return Event(host=host, local_ns=1, kind="link_up", nic=None, detail="")


@dataclass
class Attacked:
    """A manager's bus and those of the hosts h1 and h2, with a document each, and one who has the credential of h1.

    Attributes:
        errors: what the server refused the thief.
        heard: events that the manager took.
        told: documents that each host took.
    """

    url: str
    manager: Bus
    hosts: dict[str, Bus]
    thief: Client
    errors: list[str]
    heard: list[Event]
    told: dict[str, list[Desired]] = field(default_factory=dict)

    async def refused(self, *subjects: str) -> None:
        """The server has refused the thief these, and nothing else since this was asked the last time."""
        await self.thief.flush()
        await until(lambda: len(self.errors) >= len(subjects))
        assert len(self.errors) == len(subjects), self.errors
        for subject, error in zip(subjects, self.errors, strict=True):
            assert "permissions violation" in error
            assert f'"{subject.lower()}"' in error
        self.errors.clear()

    async def nothing_changed(self) -> None:
        """The stored documents are as they were, and the hosts have been told nothing else."""
        client = await connect_as_manager(self.url)
        state = (await client.jetstream().stream_info(STREAM)).state
        assert state.messages == len(self.hosts)
        assert state.last_seq == len(self.hosts)
        for host in self.hosts:
            wanted = document_of(host)
            found = await stored.read(client, stored.bucket(), document_key(POD, host), leader_seal())
            assert found.document() == wanted
            assert self.told[host] == [wanted]
        await client.close()

    async def settle(self) -> None:
        """What was published before this has come to all, or will not."""
        await self.thief.flush()
        for host, bus in self.hosts.items():
            before = len(self.heard)
            bus.publish(up(POD, host, "event"), event_of(host))
            await until(lambda before=before: len(self.heard) > before)  # type: ignore[misc]
            self.heard.pop()
        await asyncio.sleep(0.1)


@asynccontextmanager
async def attacked(path: Path) -> AsyncIterator[Attacked]:
    async with bus_server(path) as server:
        heard: list[Event] = []
        told: dict[str, list[Desired]] = {"h1": [], "h2": []}
        manager = manager_bus(server.url)
        manager.subscribe(up(POD, "*", "event"), Event, heard.append)
        hosts = {host: host_bus(server.url, host) for host in told}
        for host, bus in hosts.items():
            bus.watch(host, told[host].append)
        for bus in (manager, *hosts.values()):
            bus.start()
        for host in hosts:
            manager.put(document_of(host))
        errors: list[str] = []
        await until(lambda: all(told.values()) and not manager.documents.unwritten)
        thief = await connect_as(server.url, credential_of("h1"), errors)
        try:
            yield Attacked(server.url, manager, hosts, thief, errors, heard, told)
        finally:
            await thief.close()
            for bus in (manager, *hosts.values()):
                await bus.close()


@asynchronous
async def test_it_can_say_nothing_in_anothers_name(tmp_path: Path) -> None:
    async with attacked(tmp_path) as fleet:
        for host in ("h2", "*", "h1.x"):
            await fleet.thief.publish(f"cwdp.v2.{POD}.up.{host}.event", packed(encode(event_of("h2"))))
        await fleet.thief.publish(up("other", "h1", "event"), packed(encode(event_of("h1"))))
        await fleet.thief.publish(f"cwdp.v2.{POD}.join.h2", b"")
        await fleet.refused(
            up(POD, "h2", "event"),
            f"cwdp.v2.{POD}.up.*.event",
            up("other", "h1", "event"),
            f"cwdp.v2.{POD}.join.h2",
        )
        assert fleet.manager.counters["received_not_theirs"] == 0
        await fleet.thief.publish(up(POD, "h1", "event"), packed(encode(event_of("h2"))))
        await until(lambda: fleet.manager.counters["received_not_theirs"] == 1)
        await fleet.thief.publish(up(POD, "h1", "event"), packed(encode(event_of("h1"))))
        await until(lambda: fleet.heard == [event_of("h1")])


@asynchronous
async def test_it_can_read_its_own_document_only_and_write_none(tmp_path: Path) -> None:
    forbidden = [
        f"{DOCUMENT}.{POD}.h2",
        f"{DOCUMENT}.{POD}.h2.1",
        f"{DOCUMENT}.{POD}.h2.change",
        f"$KV.{DESIRED_BUCKET}.{POD}.h1.change",
        down(POD, "h2", "change"),
        f"{DOCUMENT}.>",
        f"$JS.API.DIRECT.GET.{STREAM}",
        f"$JS.API.STREAM.MSG.GET.{STREAM}",
        f"$KV.{DESIRED_BUCKET}.{POD}.h1",
        f"$KV.{DESIRED_BUCKET}.{POD}.h2",
        "$KV.cwdp-lease.leader",
        "$KV.cwdp-lease-1.leader",
        "$JS.API.DIRECT.GET.KV_cwdp-lease-1.$KV.cwdp-lease-1.leader",
        "$JS.API.STREAM.DELETE.KV_cwdp-lease-1",
        f"$JS.API.CONSUMER.CREATE.{STREAM}",
        f"$JS.API.CONSUMER.CREATE.{STREAM}.mine.$KV.{DESIRED_BUCKET}.{POD}.h1",
        f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.mine",
        f"$JS.API.STREAM.PURGE.{STREAM}",
        f"$JS.API.STREAM.DELETE.{STREAM}",
        f"$JS.API.STREAM.UPDATE.{STREAM}",
        "$JS.API.STREAM.CREATE.mine",
        "$JS.API.INFO",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.CLAIMS.UPDATE",
        down(POD, "h1", "document"),
        down(POD, "h2", "document"),
        down(POD, "h2", "clock"),
        "_INBOX.main.h2.x",
        "anything",
    ]
    async with attacked(tmp_path) as fleet:
        answer = await fleet.thief.request(OWN_DOCUMENT)
        assert leader_seal().opened(stored.KIND, Desired, answer.data) == document_of("h1")
        for subject in forbidden:
            await fleet.thief.publish(subject, b"{}", reply=fleet.thief.new_inbox())
        await fleet.refused(*forbidden)
        await fleet.nothing_changed()


TRICKS = [
    f"$KV.{DESIRED_BUCKET}.{POD}.h2",
    f"$JS.API.STREAM.PURGE.{STREAM}",
    f"$JS.API.STREAM.DELETE.{STREAM}",
    f"{DOCUMENT}.{POD}.h2",
    up(POD, "h2", "event"),
]


@pytest.mark.parametrize("reply", TRICKS)
@asynchronous
async def test_nothing_is_done_in_its_name_by_the_subject_that_it_wants_answers_on(
    tmp_path: Path, reply: str
) -> None:
    async with attacked(tmp_path) as fleet:
        for subject, data in ((up(POD, "h1", "event"), packed(encode(event_of("h1")))), (OWN_DOCUMENT, b"")):
            await fleet.thief.publish(subject, data, reply=reply)
        await until(lambda: event_of("h1") in fleet.heard)
        fleet.heard.clear()
        await fleet.settle()
        assert fleet.heard == []
        assert fleet.manager.counters["received_not_theirs"] == 0
        assert fleet.manager.counters["received_bad"] == 0
        await fleet.nothing_changed()


@asynchronous
async def test_what_it_has_put_on_anothers_subject_is_refused_there_and_counted(tmp_path: Path) -> None:
    async with attacked(tmp_path) as fleet:
        counters = fleet.hosts["h2"].counters
        for number, kind in enumerate(("document", "clock", "bounce", "document"), start=1):
            await fleet.thief.publish(OWN_DOCUMENT, reply=down(POD, "h2", kind))
            await fleet.settle()
            assert counters["received_not_theirs"] <= number
        assert counters["received_not_theirs"] == 2
        await fleet.nothing_changed()


@asynchronous
async def test_it_can_hear_nothing_of_others(tmp_path: Path) -> None:
    subjects = [
        ">",
        "*",
        "_INBOX.>",
        "_INBOX.*.*.>",
        f"_INBOX.{POD}.h2.>",
        "cwdp.v2.>",
        f"cwdp.v2.{POD}.down.*.>",
        down(POD, "h2", "document"),
        up(POD, "h2", "event"),
        up(POD, "h1", "event"),
        f"$KV.{DESIRED_BUCKET}.>",
        "$JS.>",
        "$SYS.>",
        "_R_.>",
    ]
    got: list[str] = []

    async def take(message: object) -> None:
        got.append(str(message))

    async with attacked(tmp_path) as fleet:
        for subject in subjects:
            await fleet.thief.subscribe(subject, cb=take)
        await fleet.thief.flush()
        await until(lambda: len(fleet.errors) >= len(subjects))
        assert len(
            [error for error in fleet.errors if "permissions violation for subscription" in error]
        ) == len(subjects)
        fleet.manager.put(document_of("h2", version=2))
        await until(lambda: fleet.told["h2"][-1].version == 2)
        await fleet.settle()
        assert got == []


@asynchronous
async def test_documents_from_before_are_not_done_and_those_that_nobody_signed_not_taken(
    tmp_path: Path,
) -> None:
    """Whoever put them there: as it were a server that others have broken into."""
    async with attacked(tmp_path) as fleet:
        fence, server = Fence(), await connect_as_manager(fleet.url)
        assert fence.admits_document(fleet.told["h2"][0])
        old = leader_seal().encode(stored.KIND, document_of("h2"))
        fleet.manager.put(document_of("h2", version=2))
        await until(lambda: fleet.told["h2"][-1].version == 2)
        assert fence.admits_document(fleet.told["h2"][-1])
        await server.publish(down(POD, "h2", stored.KIND), old)
        await until(lambda: len(fleet.told["h2"]) == 3)
        assert not fence.admits_document(fleet.told["h2"][-1])
        unsigned = encode(document_of("h2", version=9))
        other_kind = leader_seal().encode("clock", document_of("h2", version=9))
        foreign = leader_seal().encode(stored.KIND, document_of("h1", version=9))
        changed = old[:-1] + bytes([old[-1] ^ 1])
        bad = [b"", b"x" * 63, b"x" * 200, bytes(64) + unsigned, unsigned, other_kind, foreign, changed]
        for data in bad:
            await server.publish(down(POD, "h2", stored.KIND), data)
        await until(lambda: fleet.hosts["h2"].counters["received_not_theirs"] == len(bad))
        assert len(fleet.told["h2"]) == 3
        await server.close()
