"""The ways by which programs come by the shim, those that are linked with libibverbs and those that look it up as NCCL does."""

from pathlib import Path

import pytest
from shim_programs import LABEL, TABLE, labels

from tools.shim import Built, FakeAgent, Program


def environment(built: Built, way: str) -> dict[str, str]:
    return {
        "preload": {"LD_PRELOAD": str(built.shim)},
        "name": {"NCCL_IBVERBS_LIB": str(built.shim)},
        "path": {"LD_LIBRARY_PATH": f"{built.own}:{built.fakes}"},
        "audit": {"LD_AUDIT": str(built.audit)},
        "audit, bound at once": {"LD_AUDIT": str(built.audit), "LD_BIND_NOW": "1"},
        "audit and preload": {"LD_AUDIT": str(built.audit), "LD_PRELOAD": str(built.shim)},
        "audit and name": {"LD_AUDIT": str(built.audit), "NCCL_IBVERBS_LIB": str(built.shim)},
        "audit and path": {"LD_AUDIT": str(built.audit), "LD_LIBRARY_PATH": f"{built.own}:{built.fakes}"},
    }[way]


@pytest.mark.parametrize(
    ("program", "way"),
    [
        ("linked", "preload"),
        ("linked", "audit"),
        ("linked", "audit, bound at once"),
        ("linked", "audit and preload"),
        ("nccl", "name"),
        ("nccl", "path"),
        ("nccl", "audit"),
        ("nccl", "audit, bound at once"),
        ("nccl", "audit and name"),
        ("nccl", "audit and path"),
    ],
)
def test_queue_pairs_have_labels(built: Built, agent: FakeAgent, program: str, way: str) -> None:
    wanted = environment(built, way) | {"CWDP_VERBS": str(agent.path)}
    with Program(getattr(built, program), built, wanted) as running:
        running.tell("open fake_0")
        peer = agent.accept()
        peer.give(TABLE)
        peer.settle()
        assert running.answer() == ["open", "0", "77"]
        place, _ = running.connect()
        assert labels(running) == [LABEL]
        assert running.do(f"destroy {place}")[0] == 0
        assert running.do("close 0")[0] == 0
        assert [call.what for call in running.calls()] == ["destroy_qp", "close_device"]
        assert running.end() == (0, "")


@pytest.mark.parametrize(("program", "way"), [("nccl", "preload"), ("linked", "path")])
def test_what_does_not_reach_a_program(built: Built, agent: FakeAgent, program: str, way: str) -> None:
    wanted = environment(built, way) | {"CWDP_VERBS": str(agent.path)}
    with Program(getattr(built, program), built, wanted) as running:
        running.do("open fake_0")
        running.connect()
        assert labels(running) == [0]


def test_audited_programs_without_verbs_are_left_alone(built: Built) -> None:
    with Program(Path("/bin/cat"), built, environment(built, "audit")) as running:
        assert "libcwdp_verbs" not in Path(f"/proc/{running.pid}/maps").read_text()
        assert running.end() == (0, "")


def test_audited_programs_do_without_a_shim_that_is_not_there(built: Built, tmp_path: Path) -> None:
    alone = tmp_path / "audit.so"
    alone.write_bytes(built.audit.read_bytes())
    with Program(built.linked, built, {"LD_AUDIT": str(alone)}) as running:
        running.do("open fake_0")
        running.connect()
        assert labels(running) == [0]
        assert running.end() == (0, "")


def test_it_stays_when_it_is_closed(built: Built, agent: FakeAgent) -> None:
    with Program(
        built.nccl, built, {"NCCL_IBVERBS_LIB": str(built.shim), "CWDP_VERBS": str(agent.path)}
    ) as running:
        running.tell("open fake_0")
        peer = agent.accept()
        peer.give(TABLE)
        peer.settle()
        running.answer()
        for _ in range(2):
            assert running.do(f"unload {built.shim}")[0] == 0
        running.connect()
        assert labels(running) == [LABEL]
        peer.settle()
