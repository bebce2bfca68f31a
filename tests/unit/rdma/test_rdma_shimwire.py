"""The wire between agent and shim against the C of the shim: layouts, messages, and look-ups in tables made here."""

import os
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from cwdp.errors import ConfigError
from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import VERSION, Hello, Kind, Moved, QpPath, QpState, Route, Sent, Source
from cwdp.rdma.sport import sport_to_flow_label

SHIM = Path(shimwire.__file__).parent / "shim"
PROGRAMS = Path(__file__).parent / "programs"
HERE = Source("mlx5_0", 1, 3, bytes([0xFE, 0x80, *[0] * 13, 1]))
Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Compiles a program of this folder against the shim's headers."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")

    def compiled(name: str, *more: str) -> Path:
        program = tmp_path / name
        sources = [str(PROGRAMS / f"{name}.c"), *(str(SHIM / each) for each in more)]
        command = [compiler, "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-I", str(SHIM), *sources]
        subprocess.run([*command, "-o", str(program), "-pthread"], check=True)
        return program

    return compiled


def gid(random: Random) -> bytes:
    return random.randbytes(16)


def look_up(program: Path, table: bytes, questions: list[tuple[Source, bytes, int]]) -> list[list[int]]:
    """What so many queue pairs from a GID to another get by the C's look-up, for each question."""
    fd = shimwire.sealed(table)
    lines = "".join(f"{s.device} {s.port} {s.gid_index} {dst.hex()} {n}\n" for s, dst, n in questions)
    try:
        done = subprocess.run(
            [program, f"/proc/{os.getpid()}/fd/{fd}"],
            input=lines, capture_output=True, text=True, check=True,
        )  # fmt: skip
    finally:
        os.close(fd)
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


def test_layouts_and_values_are_those_of_the_header(build: Build) -> None:
    told = subprocess.run([build("layouts")], capture_output=True, text=True, check=True).stdout
    c = dict(line.split() for line in told.splitlines())
    python = {
        "MAGIC": shimwire.MAGIC, "VERSION": shimwire.VERSION, "CHOICES": shimwire.CHOICES,
        "NAME_BYTES": shimwire.NAME_BYTES, "GONE": shimwire.GONE, "SOCKET": shimwire.SOCKET,
        "COUNTS": shimwire.COUNTS, "UNCOUNTED": shimwire.UNCOUNTED,
        **{kind.name: int(kind) for kind in Kind},
        **{name.upper(): number for number, name in enumerate(shimwire.ACTUATORS)},
        "head": shimwire.HEAD.size, "hello": shimwire.HELLO.size, "qp": shimwire.QP.size,
        "move": shimwire.MOVE.size, "moved": shimwire.MOVED.size, "sent": shimwire.SENT.size,
    }  # fmt: skip
    for name in ("table", "source", "route"):
        dtype = getattr(shimwire, name.upper())
        python |= {name: dtype.itemsize} | {
            f"{name}.{field}": dtype.fields[field][1] for field in dtype.names
        }
    assert c == {name: str(value) for name, value in python.items()}


def test_messages_are_read_as_c_writes_them_and_the_other_way_round(build: Build) -> None:
    order = shimwire.move("rxe0", 17, 6, 1 << 50, 50_000, with_sqd=True)
    said = subprocess.run([build("messages")], input=order, capture_output=True, check=True).stdout
    messages = []
    while said:
        (length,) = struct.unpack_from("=I", said)
        messages.append(shimwire.read(said[4 : 4 + length]))
        said = said[4 + length :]
    dst = bytes([0xFE, 0x80, *[0] * 13, 9])
    assert messages == [
        Hello(VERSION, refused=2, untold=3, job="SLURM_JOB_ID=4711"),
        QpPath(
            "mlx5_0",
            77,
            3,
            1,
            5,
            99,
            4242,
            dst,
            by_table=1,
            actuator=2,
            count_place=6,
            lid=0x10,
            dlid=0x21,
            src_path_bits=1,
        ),
        QpState("mlx5_0", 77, 3),
        Moved("mlx5_0", 77, 3, number=1 << 40, took_ns=12_345, error=95, actuator=1),
        Sent(((4, 1 << 40), (5, 7))),
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 300, 5_000])
def test_c_finds_every_route_of_a_table_and_no_other(build: Build, count: int) -> None:
    random = Random(count)
    there = Source("mlx5_1", 2, 0, gid(random))
    ports = {
        (source, gid(random)): random.randint(0xC000, 0xFFFF)
        for source in (HERE, there)
        for _ in range(count)
    }
    routes = [Route(source.gid, dst, ((port, 1.0),)) for (source, dst), port in ports.items()]
    asked = [*ports, (HERE, gid(random)), (Source("mlx5_0", 2, 3, HERE.gid), gid(random))]
    table = shimwire.pack(count, [HERE, there], routes)
    found = look_up(build("look_up", "table.c"), table, [(*one, 1) for one in asked])
    labels = [[sport_to_flow_label(port)] for port in ports.values()]
    assert found == [*labels, [0], [0]]


def test_a_table_grows_until_every_route_is_found(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(9)
    routes = {gid(random): random.randint(0xC000, 0xFFFF) for _ in range(300)}
    monkeypatch.setattr(shimwire, "STEPS", 2)
    table = shimwire.pack(1, [HERE], [Route(HERE.gid, dst, ((port, 1.0),)) for dst, port in routes.items()])
    assert len(table) > shimwire.TABLE.itemsize + shimwire.SOURCE.itemsize + 1_024 * shimwire.ROUTE.itemsize
    found = look_up(build("look_up", "table.c"), table, [(HERE, dst, 1) for dst in routes])
    assert found == [[sport_to_flow_label(port)] for port in routes.values()]


def test_queue_pairs_are_spread_by_the_shares(build: Build) -> None:
    dst = bytes(15) + b"\x07"
    shares = ((0xC001, 1.0), (0xC002, 2.0), (0xC003, 0.0), (0xC000, 5.0))
    table = shimwire.pack(1, [HERE], [Route(HERE.gid, dst, shares)])
    (labels,) = look_up(build("look_up", "table.c"), table, [(HERE, dst, 800)])
    counted = Counter(labels)
    assert counted.keys() == {
        sport_to_flow_label(0xC001),
        sport_to_flow_label(0xC002),
        sport_to_flow_label(0xC000),
    }
    wanted = {0xC001: 100, 0xC002: 200, 0xC000: 500}
    for sport, number in wanted.items():
        assert counted[sport_to_flow_label(sport)] == pytest.approx(number, abs=3)


def test_running_sums_end_where_every_draw_is_below() -> None:
    random = Random(1)
    for _ in range(300):
        shares = tuple((0xC000 + i, random.random() + 1e-9) for i in range(random.randint(1, 16)))
        row = np.frombuffer(shimwire.pack(1, [], [Route(bytes(16), bytes(16), shares)])[24:], shimwire.ROUTE)
        used = row[row["used"] == 1][0]
        sums = used["up_to"][: used["choices"]].tolist()
        assert sums == sorted(sums)
        assert sums[-1] == 2**32 - 1


def test_a_route_keeps_sixteen_choices_and_refuses_ports_that_no_label_leads_to() -> None:
    shares = tuple((0xC000 + i, 1.0) for i in range(20))
    rows = np.frombuffer(shimwire.pack(1, [], [Route(bytes(16), bytes(16), shares)])[24:], shimwire.ROUTE)
    assert rows["choices"].max() == 16
    with pytest.raises(ConfigError):
        shimwire.pack(1, [], [Route(bytes(16), bytes(16), ((4791, 1.0),))])


def test_a_sealed_table_can_be_changed_by_nobody() -> None:
    fd = shimwire.sealed(shimwire.pack(1, [HERE], []))
    try:
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def test_what_is_no_message_is_none() -> None:
    random = Random(3)
    good = shimwire.HELLO.pack(shimwire.MAGIC, Kind.HELLO, b"", 0, 0, VERSION, 0, 0, b"")
    path = shimwire.QP.pack(shimwire.MAGIC, Kind.QP_RTR, b"a", 1, 2, 1, 1, 1, 1, bytes(16), 1, 9, 0, 0, 0, 0)
    many = shimwire.SENT.pack(
        shimwire.MAGIC, Kind.SENT, b"", 0, 0, shimwire.COUNTS + 1, *[0] * 2 * shimwire.COUNTS
    )
    for data in (
        b"",
        good[:-1],
        good + b"\0",
        b"\0" * len(good),
        path,
        many,
        shimwire.head(Kind.MOVE),
        random.randbytes(120),
    ):
        assert shimwire.read(data) is None
    for name in (b"\xff" * 64, b"a\n"):
        assert shimwire.read(shimwire.HEAD.pack(shimwire.MAGIC, Kind.QP_STATE, name, 1, 2)) is None
    assert shimwire.read(good) == Hello(VERSION, 0, 0)


def test_another_versions_hello_is_known_whatever_follows() -> None:
    for more in (b"", bytes(12), bytes(500)):
        other = shimwire.head(Kind.HELLO) + struct.pack("=I", VERSION + 1) + more
        assert shimwire.read(other) == Hello(VERSION + 1, 0, 0)


def test_what_a_program_says_of_its_job_can_be_shown() -> None:
    def job(told: bytes) -> str:
        data = shimwire.HELLO.pack(shimwire.MAGIC, Kind.HELLO, b"", 0, 0, VERSION, 0, 0, told)
        message = shimwire.read(data)
        assert isinstance(message, Hello)
        return message.job

    assert job(b"PBS_JOBID=7.server") == "PBS_JOBID=7.server"
    assert job(b"RAY_JOB_ID=\x1b[2J\r\n\xc3\xa4\x7f") == "RAY_JOB_ID=?[2J?????"
    assert job(b"x" * 64) == "x" * 64
    assert job(b"a\0\x1bb") == "a"
