"""Pods on one bus: each has leaders of its own and knows nothing of others' hosts; the probe keys are the fleet's."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asynchronous import asynchronous
from bus_fakes import bus_server, connect_as, connect_as_manager, credential_of, manager_bus, save_authority
from fakes import FakeHost, fleet, until
from test_manager_service import _json

from cwdp.shared.bus.sealing import NotTheirsError
from cwdp.shared.bus.subjects import pod_report, up
from cwdp.shared.identity.probe_keys import KEYS, KeysAnswer, KeysRequest
from manager.bus.lease import BUCKET, KEY
from manager.bus.pods import bucket_of
from manager.config import ManagerConfig
from manager.identity.probe_keys import ProbeKeys
from manager.overrides.steering import SteerOverride
from manager.pods.pods import SILENT_S, PodReport, Pods
from manager.service import Manager

FIRST, SECOND = "main", "p2"

needs_bus = pytest.mark.needs("nats-server")


def _ids(keys: ProbeKeys) -> set[int]:
    return {key.id for key in keys.wanted.key}


class _Now:
    """A clock that is set."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


class _Own:
    """A manager of a pod, as far as its pod goes."""

    def __init__(self, path: Path, pod: str) -> None:
        self.leads, self.hosts, self.now = True, ["h1"], _Now()
        self.keys = ProbeKeys(path / f"{pod}.json")
        self.pods = Pods(
            manager_bus("tls://127.0.0.1:1", pod=pod),
            f"m-{pod}",
            leads=lambda: self.leads,
            hosts=lambda: self.hosts,
            keys=self.keys,
            now_s=self.now,
        )
        self.pods.connect(True)

    def hear(self, pod: str, keys: str | None = None) -> None:
        fingerprint = self.keys.wanted.fingerprint if keys is None else keys
        self.pods.hear(PodReport(pod=pod, manager=f"m-{pod}", hosts_up=3, keys=fingerprint))


def test_the_root_is_the_first_pod_that_is_heard(tmp_path: Path) -> None:
    own = _Own(tmp_path, "b")
    assert own.pods.root is None
    own.now.s += SILENT_S
    assert own.pods.root == "b"
    own.hear("c")
    assert own.pods.root == "b"
    own.hear("a")
    assert own.pods.root == "a"
    assert [report.pod for report in own.pods.all()] == ["a", "b", "c"]
    own.now.s += SILENT_S
    assert own.pods.root == "b"
    assert [report.pod for report in own.pods.all()] == ["b"]
    own.leads = False
    assert (own.pods.root, own.pods.all()) == (None, [])
    own.hear("c")
    assert own.pods.root == "c"


def test_who_was_cut_off_hears_others_before_it_takes_itself_for_the_root(tmp_path: Path) -> None:
    own = _Own(tmp_path, "b")
    own.now.s += 60.0
    own.pods.connect(False)
    assert own.pods.root is None
    own.now.s += 60.0
    own.pods.connect(True)
    assert own.pods.root is None
    own.now.s += SILENT_S
    assert own.pods.root == "b"


def test_a_rotation_waits_for_every_pod_that_is_heard(tmp_path: Path) -> None:
    own = _Own(tmp_path, "a")
    assert not own.pods.may_go_on()
    own.now.s += SILENT_S
    assert own.pods.may_go_on()
    own.hear("b", keys="")
    assert not own.pods.may_go_on()
    own.hear("b")
    assert own.pods.may_go_on()
    own.keys.rotate()
    assert not own.pods.may_go_on()
    own.hear("b")
    assert own.pods.may_go_on()
    own.leads = False
    assert not own.pods.may_go_on()


def test_a_pod_has_the_keys_once_all_its_hosts_have_them(tmp_path: Path) -> None:
    own = _Own(tmp_path, "a")
    assert own.pods.own().keys == ""
    own.keys.hear("h1", own.keys.wanted.fingerprint)
    assert own.pods.own().keys == own.keys.wanted.fingerprint
    own.hosts = ["h1", "h2"]
    assert own.pods.own() == PodReport(pod="a", manager="m-a", hosts_up=2, keys="")


class _TwoPods:
    """A manager of each, and hosts that ask for keys as agents do."""

    def __init__(self, path: Path, url: str) -> None:
        self._path, self._url = path, url
        self._authority = save_authority(path)
        self.of: dict[str, Manager] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.hosts = {pod: fleet(3, url, pod=pod) for pod in (FIRST, SECOND)}
        self._has: dict[str, str] = {}
        self._asking: asyncio.Task[None] | None = None

    def socket(self, pod: str) -> str:
        return str(self._path / f"{pod}.sock")

    def start(self, pod: str) -> None:
        config = ManagerConfig(
            name=f"m-{pod}",
            pod=pod,
            authority=self._authority,
            nats=self._url,
            state_dir=str(self._path / pod),
            socket=self.socket(pod),
            page="",
        )
        self.of[pod] = Manager(config)
        self._tasks[pod] = asyncio.create_task(self.of[pod].run())

    async def stop(self, pod: str) -> None:
        self.of.pop(pod).stop()
        await self._tasks[pod]

    async def _ask_for_keys(self, hosts: Iterable[FakeHost]) -> None:
        while True:
            for host in hosts:
                asked = KeysRequest(host=host.name, have=self._has.get(host.name, ""))
                answer = await host.bus.ask(up(host.pod, host.name, KEYS), KEYS, asked, KeysAnswer)
                if answer.keys is not None:
                    self._has[host.name] = answer.keys.fingerprint
                    host.key_ids = [key.id for key in answer.keys.key]
            await asyncio.sleep(0.2)

    async def ask_for_keys(self, pod: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._ask_for_keys(self.hosts[pod]))


@asynccontextmanager
async def _two_pods(path: Path) -> AsyncIterator[_TwoPods]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(bus_server(path / "nats"))
        pods = _TwoPods(path, server.url)
        for pod, hosts in pods.hosts.items():
            pods.start(pod)
            stack.push_async_callback(_if_there, pods, pod)
            for host in hosts:
                host.start()
                stack.push_async_callback(host.stop)
        await until(lambda: all(manager.state.leads for manager in pods.of.values()))
        yield pods


async def _if_there(pods: _TwoPods, pod: str) -> None:
    if pod in pods.of:
        await pods.stop(pod)


def _probed(hosts: list[FakeHost]) -> set[str]:
    documents = [host.desired for host in hosts if host.desired is not None]
    return {edge.dst.partition("/")[0] for document in documents for edge in document.probes}


@needs_bus
@asynchronous
async def test_each_pod_has_a_leader_that_decides_for_its_hosts(tmp_path: Path) -> None:
    async with _two_pods(tmp_path) as pods:
        names = {pod: {host.name for host in hosts} for pod, hosts in pods.hosts.items()}
        await until(lambda: all(_probed(hosts) == names[pod] for pod, hosts in pods.hosts.items()))
        for pod, manager in pods.of.items():
            assert set(manager.state.members.hosts) == names[pod]
        override = SteerOverride(host="p21", nic="eth0", dst="10.0.0.8", qpn=78, sport=50_002)
        pods.of[SECOND].state.steering.set(override)
        await pods.of[SECOND].commit()
        await until(lambda: bool(pods.hosts[SECOND][1].desired and pods.hosts[SECOND][1].desired.steer))
        assert not pods.of[FIRST].state.steering.all()
        assert not any(host.desired and host.desired.steer for host in pods.hosts[FIRST])
        await until(lambda: len(pods.of[FIRST].pods.all()) == 2)
        told = await _json(pods.socket(FIRST), "/v1/manager")
        assert told["pods"] == [
            {"pod": FIRST, "leader": "m-main", "hosts_up": 3},
            {"pod": SECOND, "leader": "m-p2", "hosts_up": 3},
        ]
        await pods.stop(SECOND)
        await asyncio.sleep(1.0)
        assert pods.of[FIRST].state.leads
        pods.start(SECOND)
        await until(lambda: pods.of[SECOND].state.leads)
        assert override in pods.of[SECOND].state.steering.all()


@needs_bus
@asynchronous
async def test_the_probe_keys_are_one_for_all_pods_and_rotated_once_all_hosts_have_them(
    tmp_path: Path,
) -> None:
    async with _two_pods(tmp_path) as pods:
        first, second = (pods.of[pod]._probe_keys for pod in (FIRST, SECOND))
        await until(lambda: first.wanted == second.wanted)
        asking = [await pods.ask_for_keys(FIRST)]
        before = first.wanted
        pods.of[SECOND].credentials.rotate_keys(by="somebody")
        await until(lambda: first.stage == second.stage == "introduced")
        await asyncio.sleep(SILENT_S + 2.0)
        assert first.stage == "introduced", "a host of the other pod has not got the new key yet"
        asking.append(await pods.ask_for_keys(SECOND))
        await until(lambda: first.stage == second.stage == "settled")
        assert first.wanted == second.wanted
        assert _ids(first).isdisjoint(key.id for key in before.key)
        for task in asking:
            task.cancel()


@needs_bus
@asynchronous
async def test_of_rotations_that_are_asked_for_at_once_none_is_lost(tmp_path: Path) -> None:
    """Each may follow a host that was revoked, which knows the key that the other one has begun with."""
    async with _two_pods(tmp_path) as pods:
        first, second = (pods.of[pod]._probe_keys for pod in (FIRST, SECOND))
        await until(lambda: first.wanted == second.wanted)
        (before,) = _ids(first)
        for manager in pods.of.values():
            manager.credentials.rotate_keys(by="somebody")
        assert first.wanted != second.wanted
        asking = [await pods.ask_for_keys(pod) for pod in pods.of]
        await until(lambda: first.stage == second.stage == "settled" and _ids(first) == {before + 2}, 40.0)
        assert first.wanted == second.wanted
        for task in asking:
            task.cancel()


@needs_bus
@asynchronous
async def test_what_is_on_the_bus_of_a_pod_bears_its_name_but_for_the_first(tmp_path: Path) -> None:
    async with _two_pods(tmp_path) as pods:
        client = await connect_as_manager(pods.of[FIRST].bus.url)
        holders: dict[str, Any] = {}
        for pod in (FIRST, SECOND):
            store = await client.jetstream().key_value(bucket_of(BUCKET, pod))
            holders[pod] = msgspec.json.decode((await store.get(KEY)).value or b"")["name"]
        assert holders == {FIRST: "m-main", SECOND: "m-p2"}
        wishes = await client.jetstream().key_value("cwdp-wishes")
        assert {"steer", "timeline", "keys", "p2.steer", "p2.timeline"} <= set(await wishes.keys())
        assert "p2.keys" not in await wishes.keys()
        await until(lambda: pods.of[SECOND].history.figures.records.get("sent", 0) > 0)
        streams = {info.config.name for info in await client.jsm().streams_info()}
        assert {"cwdp-history", "cwdp-history-p2"} <= streams
        await client.close()


@needs_bus
@asynchronous
async def test_no_host_speaks_for_a_pod(tmp_path: Path) -> None:
    async with _two_pods(tmp_path) as pods:
        first, errors = pods.of[FIRST], list[str]()
        client = await connect_as(first.bus.url, credential_of("h0"), errors)
        await client.publish(pod_report("aa"), b"anything")
        await client.flush()
        await until(lambda: any("permissions violation" in error for error in errors))
        await client.close()
        unsigned = msgspec.msgpack.encode(PodReport(pod="aa", manager="m", hosts_up=1, keys=""))
        with pytest.raises(NotTheirsError):
            first.bus._seal.decode(pod_report("aa"), PodReport, b"0" * 64 + unsigned)
        assert [report.pod for report in first.pods.others()] in ([], [SECOND])


@needs_bus
@asynchronous
async def test_leaders_tell_the_root_what_they_want_and_are_granted_a_part(tmp_path: Path) -> None:
    async with _two_pods(tmp_path) as pods:
        first, second = (pods.of[pod].sharing for pod in (FIRST, SECOND))
        await until(lambda: first.reports["ok"] > 0 and second.reports["ok"] > 0, timeout_s=30.0)
        assert not {**first.reports, **second.reports}["not_sane"]
        assert pods.of[FIRST].duties.seconds["root"] > 0.0


@needs_bus
@asynchronous
async def test_leaders_tell_each_other_what_is_at_fault_and_only_the_root_hears_evidence(
    tmp_path: Path,
) -> None:
    async with _two_pods(tmp_path) as pods:
        first, second = (pods.of[pod].together for pod in (FIRST, SECOND))
        await until(lambda: first.board.reports["ok"] > 0 and second.board.reports["ok"] > 0, timeout_s=30.0)
        assert not any({**each.board.reports}["not_sane"] for each in (first, second))
        assert set(second.board.fresh()) == {FIRST}
        await until(lambda: second.board.fresh()[FIRST].is_root, timeout_s=30.0)
        assert not sum(second.inbox.reports.values())
