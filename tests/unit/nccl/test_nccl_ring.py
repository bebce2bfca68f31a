"""The ring in Python: its layout against the C, and rings that lie."""

import fcntl
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import need
import numpy as np
import pytest

from cwdp.nccl import ring as rings
from cwdp.nccl.ring import RECORDS, Ring, take_ring

PLUGIN = Path(rings.__file__).parent / "plugin"


def valid() -> bytearray:
    memory = bytearray(rings.BYTES)
    rings.HEADER.pack_into(
        memory, 0, rings.MAGIC, rings.VERSION, rings.COMMS, RECORDS, 7, 0, b"PBS_JOBID=1\x07"
    )
    return memory


def passed(
    memory: bytes, *, hello: bytes = rings.HELLO.pack(rings.MAGIC, rings.VERSION), seals: int = rings.SEALS
) -> tuple[Ring | None, int]:
    """What an agent takes of a program that passes this over; and the program's descriptor."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, memory)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    with here, there:
        socket.send_fds(here, [hello], [fd])
        return take_ring(there), fd


@pytest.fixture
def ring() -> Iterator[tuple[Ring, int]]:
    taken, fd = passed(valid())
    assert taken is not None
    yield taken, fd
    os.close(fd)


def put(fd: int, head: int, records: np.ndarray) -> None:
    os.pwrite(fd, records.tobytes(), rings.RECORDS_AT)
    os.pwrite(fd, head.to_bytes(8, "little"), rings.HEAD_AT)


def test_layout_is_that_of_the_c(tmp_path: Path) -> None:
    need.installed("gcc")
    fields = [
        *(("record", name) for name in rings.RECORD.names or ()),
        *(("comm", n) for n in rings.COMM.names or ()),
    ]
    lines = "".join(f"P(offsetof(struct cwdp_nccl_{of}, {name}));" for of, name in fields)
    sizes = "P(sizeof(struct cwdp_nccl_ring)); P(offsetof(struct cwdp_nccl_ring, comm)); P(offsetof(struct cwdp_nccl_ring, record));"
    counters = "".join(
        f"P(offsetof(struct cwdp_nccl_ring, {name}));" for name in ("dropped", "no_slot", "no_comm", "stale")
    )
    numbers = "P(CWDP_NCCL_MAGIC); P(CWDP_NCCL_VERSION); P(CWDP_NCCL_COMMS); P(CWDP_NCCL_RECORDS); P(sizeof(struct cwdp_nccl_hello));"
    (tmp_path / "p.c").write_text(
        '#include "ring.h"\n#include <stdio.h>\n#define P(x) printf("%lu\\n", (unsigned long)(x))\n'
        f"int main(void) {{ {lines} {sizes} {counters} {numbers} }}\n"
    )
    subprocess.run(["gcc", "-I", PLUGIN, tmp_path / "p.c", "-o", tmp_path / "p"], check=True)
    told = [int(line) for line in subprocess.check_output([tmp_path / "p"], text=True).split()]
    dtypes = {"record": rings.RECORD, "comm": rings.COMM}
    assert told == [
        *((dtypes[of].fields or {})[name][1] for of, name in fields),
        rings.BYTES, rings.COMMS_AT, rings.RECORDS_AT,
        *(rings.COUNTS_AT + 8 * place for place in range(len(rings.COUNTS))),
        rings.MAGIC, rings.VERSION, rings.COMMS, RECORDS, rings.HELLO.size,
    ]  # fmt: skip
    assert f'"{rings.SOCKET}"' in (PLUGIN / "ring.h").read_text()


def test_what_a_program_says_of_itself(ring: tuple[Ring, int]) -> None:
    assert (ring[0].pid, ring[0].job) == (7, "PBS_JOBID=1?")


@pytest.mark.parametrize(
    "harm",
    [
        {"memory": valid()[:-1]},
        {"memory": bytes(rings.BYTES)},
        {"memory": b""},
        {"seals": 0},
        {"seals": fcntl.F_SEAL_SHRINK},
        {"hello": b"x"},
        {"hello": rings.HELLO.pack(rings.MAGIC, 99)},
        {"hello": rings.HELLO.pack(rings.MAGIC, rings.VERSION) + b"x"},
    ],
    ids=["short", "zero", "empty", "unsealed", "may grow", "garbage", "another version", "too long"],
)
def test_what_is_no_ring_is_not_taken(harm: dict[str, bytes]) -> None:
    taken, fd = passed(**{"memory": valid()} | harm)  # type: ignore[arg-type]
    os.close(fd)
    assert taken is None


def test_a_file_is_no_ring(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(valid())
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there, (tmp_path / "f").open("rb") as file:
        socket.send_fds(here, [rings.HELLO.pack(rings.MAGIC, rings.VERSION)], [file.fileno()])
        assert take_ring(there) is None


def test_several_descriptors_are_refused_and_closed() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = len([*Path("/proc/self/fd").iterdir()])
    with here, there:
        socket.send_fds(here, [rings.HELLO.pack(rings.MAGIC, rings.VERSION)], [0, 1])
        assert take_ring(there) is None
        assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_records_that_are_not_whole_are_waited_for(ring: tuple[Ring, int]) -> None:
    taken, fd = ring
    records = np.zeros(4, rings.RECORD)
    records["place"] = [1, 2, 0, 4]
    put(fd, 4, records)
    assert len(taken.read()) == 2
    assert len(taken.read()) == 0
    records["place"] = [1, 2, 3, 4]
    put(fd, 4, records)
    assert len(taken.read()) == 2


@pytest.mark.parametrize("head", [2**64 - 1, RECORDS * 7, 2**63], ids=["below", "far above", "half way"])
def test_a_head_that_lies_gives_no_more_than_there_is_room(ring: tuple[Ring, int], head: int) -> None:
    taken, fd = ring
    records = np.zeros(RECORDS, rings.RECORD)
    records["place"] = np.arange(1, RECORDS + 1)
    put(fd, head, records)
    assert len(taken.read()) == RECORDS
    assert len(taken.read()) == 0


def test_a_tail_that_lies() -> None:
    memory = valid()
    memory[rings.TAIL_AT : rings.TAIL_AT + 8] = b"\xff" * 8
    taken, fd = passed(memory)
    assert taken is not None
    records = np.zeros(4, rings.RECORD)
    records["place"] = [1, 2, 3, 4]
    put(fd, 3, records)
    assert len(taken.read()) <= 4
    assert len(taken.read()) == 0
    os.close(fd)
