"""What the page asks of audits: answered from what is kept, and refused with a way on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from audit_world import TODAY

from manager.api.audit.audit_http import AuditHttp
from manager.audit.checks.loading import load_checks
from manager.audit.judging.judge import judge
from manager.audit.service.kept import VERDICTS, Files, Finished
from manager.audit.service.network import NOTHING
from tools.free_ports import free_port
from tools.sim.audit.fleet import fleet


def _audits(folder: Path, *widths: int) -> Any:
    """Audits of the same hosts, of which one has a NIC of each of these widths in turn."""
    files, latest = Files(folder), None
    for number, width in enumerate(widths, 1):
        facts = fleet(6, 1, ["h100"])
        nic = next(each for each in facts[2].subjects if each.kind == "nic" and each.role == "back")
        nic.facts["pcie_width"] = width
        audit = judge(load_checks(), facts, today=TODAY)
        latest = Finished(
            number=number,
            level="facts",
            by="alice",
            began_s=100.0 * number,
            ended_s=100.0 * number + 3,
            hosts=sorted(audit.hosts),
            audit=audit,
            network=NOTHING,
        )
        files.keep(latest, facts)
    return SimpleNamespace(files=files, latest=latest, progress=lambda: None)


@contextlib.asynccontextmanager
async def _served(audits: Any) -> AsyncIterator[aiohttp.ClientSession]:
    app, port = web.Application(), free_port()
    app.add_routes(AuditHttp(audits).reading_routes())
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield session
    finally:
        await runner.cleanup()


def _asked(audits: Any, *paths: str) -> list[tuple[int, Any]]:
    """The status and the answer of each."""

    async def ask() -> list[tuple[int, Any]]:
        told = []
        async with _served(audits) as session:
            for path in paths:
                async with session.get(f"/v1/audit/{path}") as answer:
                    told.append((answer.status, await answer.json(content_type=None)))
        return told

    return asyncio.run(asyncio.wait_for(ask(), 60))


def test_findings_one_of_them_and_what_has_changed(tmp_path: Path) -> None:
    audits = _audits(tmp_path, 16, 8, 4)
    (status, found), (_, then), (_, changed), (_, first) = _asked(
        audits, "findings", "findings?number=1", "changes", "changes?older=1&newer=2"
    )
    assert (status, found["number"], then["number"], then["rows"]) == (200, 3, 1, [])
    (row,) = [each for each in found["rows"] if each["checks"] == ["pcie-width"]]
    assert (row["verdict"], row["host"], row["found"]) == ("fail", "h100-003", "4")
    assert [each["after"] for each in changed["changed"] if each["checks"] == ["pcie-width"]] == ["fail: 4"]
    assert (first["older"], first["newer"], first["gone"]) == (1, 2, [])
    assert [each["checks"] for each in first["new"]].count(["pcie-width"]) == 1
    filters = "verdict=fail&host=h100-003&q=width"
    (_, one), (_, told) = _asked(audits, f"finding?key={row['key']}&{filters}", f"findings?{filters}&limit=1")
    assert [each["host"] for each in one["results"]] == ["h100-003"]
    assert [each["key"] for each in told["rows"]] == [row["key"]]


def test_the_list_has_what_can_be_read_and_the_last_though_it_could_not_be_kept(tmp_path: Path) -> None:
    audits = _audits(tmp_path, 16, 8, 4)
    (tmp_path / f"000001{VERDICTS}").write_bytes(b"rubbish")
    (tmp_path / f"000003{VERDICTS}").unlink()
    (first, again) = _asked(audits, "list", "list")
    assert first == again
    assert [(row["number"], row["severity"], row["hosts"]) for row in first[1]["audits"]] == [
        (3, "critical", 6),
        (2, "critical", 6),
    ]
    assert "audit" not in first[1]["audits"][0]


def test_the_verdict_of_a_host_in_short(tmp_path: Path) -> None:
    (_, bad), (_, good), (_, whole) = _asked(
        _audits(tmp_path, 8), *(f"verdict?host=h100-00{i}" for i in ("3&short=1", "1&short=1", "3"))
    )
    assert (bad["verdict"], good["verdict"], "audit" in bad, "audit" in whole) == (
        "fail",
        "pass",
        False,
        True,
    )


def test_where_no_audit_was_made(tmp_path: Path) -> None:
    told = _asked(_audits(tmp_path), "list", "verdict?host=h1&short=1", "findings", "changes", "progress")
    assert told[0] == (200, {"audits": []})
    assert told[1] == (200, {"number": 0, "host": "h1"})
    assert [status for status, _ in told[2:]] == [404, 404, 200]
    assert "cwdp audit run" in told[2][1]["hint"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("findings?number=9", 404),
        ("findings?number=x", 400),
        (f"findings?number={'9' * 5000}", 400),
        ("findings?limit=-1", 400),
        (f"findings?limit={'9' * 5000}", 400),
        ("findings?verdict=beautiful", 400),
        ("finding?key=%3Cimg%3E", 404),
        ("changes?older=1&newer=9", 404),
        ("changes?newer=1", 404),
    ],
)
def test_what_cannot_be_answered_is_said_with_a_way_on(path: str, status: int, tmp_path: Path) -> None:
    ((found, told),) = _asked(_audits(tmp_path, 8), path)
    assert found == status
    assert told["error"]
    assert told["hint"]
