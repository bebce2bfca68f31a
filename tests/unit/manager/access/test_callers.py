"""Who asks by the unix socket, and what that lets them do."""

import asyncio
import grp
import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from manager.access.callers import Callers
from manager.access.grants import Grants
from manager.access.roles import Role
from manager.config import RoleSettings

ASK = """
import http.client, os, socket, sys
path, uid, *gids = sys.argv[1:]
os.setgroups([int(gid) for gid in gids]); os.setgid(65534); os.setuid(int(uid))
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX); connection.sock.connect(path)
connection.request("PUT", "/"); answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""


def _group(number: int) -> grp.struct_group:
    return sorted(grp.getgrall(), key=lambda each: each.gr_gid)[number]


SETTINGS = RoleSettings(
    viewers=(_group(3).gr_name,),
    operators=(_group(4).gr_name, "no-such-group"),
    administrators=(_group(5).gr_name,),
)


@pytest.mark.parametrize(
    ("uid", "gids", "role"),
    [
        (0, set(), Role.ADMINISTRATOR),
        (os.geteuid(), set(), Role.ADMINISTRATOR),
        (4242, set(), Role.NONE),
        (4242, {_group(3).gr_gid}, Role.VIEWER),
        (4242, {_group(3).gr_gid, _group(4).gr_gid}, Role.OPERATOR),
        (4242, {_group(5).gr_gid, 99_999}, Role.ADMINISTRATOR),
        (4242, {99_999}, Role.NONE),
    ],
)
def test_a_callers_groups_make_the_role(uid: int, gids: set[int], role: Role) -> None:
    assert Callers(SETTINGS, Grants(None)).role(uid, gids) is role


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be somebody else")
@pytest.mark.parametrize(
    ("group", "needed", "status"),
    [
        (None, Role.VIEWER, 403),
        (3, Role.VIEWER, 200),
        (3, Role.OPERATOR, 403),
        (4, Role.OPERATOR, 200),
        (4, Role.ADMINISTRATOR, 403),
        (5, Role.ADMINISTRATOR, 200),
    ],
)
def test_the_kernel_tells_who_asks(tmp_path: Path, group: int | None, needed: Role, status: int) -> None:
    gids = [] if group is None else [str(_group(group).gr_gid)]
    code, said = asyncio.run(_asked(tmp_path, needed, ["4242", *gids]))
    assert code == status, said
    if status == 403:
        assert needed.name.lower() in said


async def _asked(tmp_path: Path, needed: Role, who: list[str]) -> tuple[int, str]:
    """What somebody is answered who changes something."""

    async def done(_request: web.Request) -> web.Response:
        return web.Response(text="done")

    app, path = web.Application(), Path("/tmp") / f"callers-{os.getpid()}-{tmp_path.name}"
    app.add_routes([web.put("/", Callers(SETTINGS, Grants(None)).changes(needed, done))])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(path)).start()
        await asyncio.to_thread(path.chmod, 0o666)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASK, str(path), *who, stdout=subprocess.PIPE
        )
        answer, _ = await child.communicate()
    finally:
        await runner.cleanup()
    status, _, said = answer.decode().partition(" ")
    return int(status), said
