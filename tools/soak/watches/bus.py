"""Whether the bus servers keep the same, and both managers' histories tell the same, once all trouble is over."""

import asyncio
import json
from typing import Any

from nats.aio.client import Client

from cwdp.errors import ManagerError
from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, stream_of
from cwdp.shared.bus.messages import DESIRED_BUCKET
from cwdp.shared.bus.session import dial, hang_up
from manager.bus.registers import IN_CLUSTER, buckets
from manager.history.stream import STREAM
from manager.identity.authority import DEFAULT_POD, Authority
from manager.identity.registry import BUCKET as CREDENTIALS_BUCKET
from tools.lab.network import netns
from tools.soak.stage import Stage
from tools.waiting import wait_for

STREAMS = (STREAM, *map(stream_of, (DESIRED_BUCKET, CREDENTIALS_BUCKET)))
WHOLE_S = 60.0
MOST_EVENTS = 10_000
SENT_S = 5.0
"""What happened later may not have come to everybody yet."""

Json = dict[str, Any]


def behind(stage: Stage) -> list[str]:
    """Streams of which not every server has a copy that is up to date, after as long as that may take.

    And registers of the lease that no server keeps, or one server keeps together.
    """
    found: list[str] = list(STREAMS)

    def is_whole() -> bool:
        found[:] = netns.in_thread(lambda: _asked(stage))
        return not found

    wait_for(is_whole, WHOLE_S, poll_s=1.0)
    return found


def _asked(stage: Stage) -> list[str]:
    netns.enter_for_good(stage.lab.mgmt_netns)
    return asyncio.run(_behind(stage))


async def _behind(stage: Stage) -> list[str]:
    credential = Authority.load(stage.lab.run_dir / "authority").manager_credential("soak")
    for url in stage.fleet.bus.split(","):
        try:
            client = await dial(url, credential, name="soak", on_error=_ignore, on_closed=_ignore)
        except JETSTREAM_ERRORS:
            continue
        try:
            servers = len(stage.lab.topology.servers)
            told = [await _stream(client, stream, servers) for stream in STREAMS]
            return [each for each in (*told, await _registers(client, servers)) if each]
        finally:
            await hang_up(client)
    return ["no bus server answers"]


async def _stream(client: Client, stream: str, servers: int) -> str:
    """What is wrong with one; empty for nothing."""
    try:
        said = await _info(client, stream)
    except JETSTREAM_ERRORS as error:
        return f"{stream}: {str(error) or type(error).__name__}"
    cluster = said.get("cluster") or {}
    replicas = cluster.get("replicas") or []
    late = [each["name"] for each in replicas if not each.get("current") or each.get("offline")]
    if "error" in said or not cluster.get("leader") or len(replicas) + 1 != servers:
        return f"{stream}: {said.get('error') or cluster}"
    return f"{stream}: {', '.join(late)} behind" if late else ""


async def _registers(client: Client, servers: int) -> str:
    """What is wrong with those of the lease; empty for nothing."""
    streams = [stream_of(bucket) for bucket in buckets(DEFAULT_POD, IN_CLUSTER if servers > 1 else 1)]
    try:
        said = [await _info(client, stream) for stream in streams]
    except JETSTREAM_ERRORS as error:
        return f"{', '.join(streams)}: {str(error) or type(error).__name__}"
    homes = [(each.get("cluster") or {}).get("leader") for each in said]
    is_well = len(streams) == 1 or (None not in homes and len(set(homes)) == len(streams))
    return "" if is_well else f"{', '.join(streams)}: on {homes}"


async def _info(client: Client, stream: str) -> Json:
    said: Json = json.loads((await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=2)).data)
    return said


async def _ignore(*_: object) -> None:
    """It is asked again."""


def histories_differ(stage: Stage, since_s: float, until_s: float) -> list[str]:
    """What one manager's history tells and another's does not; times since 1970."""
    found: list[str] = []

    def is_same() -> bool:
        try:
            told = [_events(stage, name, since_s, until_s) for name in stage.fleet.managers]
        except ManagerError as error:
            found[:] = [error.message]
            return False
        everything = set().union(*told)
        found[:] = [
            f"{name} lacks {'; '.join(map(str, missing[:3]))} ({len(missing)} in all)"
            for name, its in zip(stage.fleet.managers, told, strict=True)
            if (missing := sorted(everything - its))
        ]
        return not found

    wait_for(is_same, WHOLE_S, poll_s=2.0)
    return found


def _events(stage: Stage, manager: str, since_s: float, until_s: float) -> set[tuple[float, str, str, str]]:
    query: dict[str, str | int] = {
        "since": str(since_s),
        "until": str(until_s - SENT_S),
        "limit": MOST_EVENTS,
    }
    events = stage.client(manager).get("/v1/events", query)["events"]
    return {(each["time_s"], each["host"], each["kind"], each["detail"]) for each in events}


def unwell(stage: Stage) -> list[str]:
    """Hosts that are not up, synced and with the same keys as all others, after as long as that may take."""
    found: list[str] = []

    def is_well() -> bool:
        try:
            rows = stage.leader().get("/v1/host")["hosts"]
        except ManagerError as error:
            found[:] = [error.message]
            return False
        keys = {tuple(row["key_ids"]) for row in rows}
        found[:] = [
            f"{row['host']} is {row['state']}, its clock {row['clock_state']}"
            for row in rows
            if (row["state"], row["clock_state"]) != ("up", "synced")
        ]
        found.extend([f"their keys are {sorted(keys)}"] if len(keys) > 1 else [])
        found.extend([f"{len(rows)} hosts"] if len(rows) != len(stage.lab.hosts) else [])
        return not found

    wait_for(is_well, WHOLE_S, poll_s=1.0)
    return found
