"""One loaded dataplane, run packet by packet with BPF_PROG_TEST_RUN."""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from probes import KEY, KEY_ID, Probe, signed
from pyroute2 import IPRoute
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Reason, SlotState
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.dataplane.loading import hooks, loader
from cwdp.dataplane.loading.hooks import Hook
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned import control, tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.dataplane.steering.steering import QpKey, Steer, Steering

XDP_DROP, XDP_PASS, XDP_TX = 1, 2, 3
TC_ACT_UNSPEC = 0xFFFFFFFF
CLONE_NEWNET = 0x40000000
SKB_CONTEXT_BYTES, SKB_MARK_OFFSET, SKB_PRIORITY_OFFSET = 192, 8, 32
SKB_TSTAMP_OFFSET, SKB_GSO_SIZE_OFFSET = 152, 176
CHECKSUM_COMPLETE = 1 << 2
XDP_CONTEXT_BYTES, XDP_DATA_END_OFFSET = 24, 4
FROM_AGENT = loader.OBJECT.with_name("test_agent.bpf.o")

_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network namespace without a name: it is gone when it is closed, or when the process dies."""

    def __init__(self) -> None:
        with _returning():
            assert _libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is inside."""
        with _returning():
            set_namespace(self.fd)
            yield

    def close(self) -> None:
        """Let it go, with whatever trees its interfaces have."""
        with self.entered():
            for where in tree.trees_here():
                tree.remove(where)
        os.close(self.fd)


@contextmanager
def _returning() -> Iterator[None]:
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        yield
    finally:
        set_namespace(home)
        os.close(home)


def set_namespace(fd: int) -> None:
    """Move this thread."""
    assert _libc.setns(fd, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


def add_link(ifname: str, kind: str, **settings: object) -> None:
    """Make an interface in this namespace and switch it on."""
    with IPRoute() as ip:
        ip.link("add", ifname=ifname, kind=kind, **settings)
        ip.link("set", index=ip.link_lookup(ifname=ifname)[0], state="up")


def add_veth(ifname: str, peer: str) -> None:
    """A pair of interfaces, both up."""
    with IPRoute() as ip:
        ip.link("add", ifname=ifname, kind="veth", peer={"ifname": peer})
        for name in (ifname, peer):
            ip.link("set", index=ip.link_lookup(ifname=name)[0], state="up")


def delete_link(ifname: str) -> None:
    with IPRoute() as ip:
        ip.link("del", ifname=ifname)


def running(where: TreePath, hook: Hook) -> int | None:
    """The kernel's number of the program that it runs at a hook."""
    ifindex = ifindex_of(where.ifname)
    if not (where.path / hook.link).exists():
        return hooks.clsact_program(ifindex, hook)
    with libbpf.opened(where.path / hook.link) as link:
        target, program = libbpf.link_target(link)
    return program if target == ifindex else None


@dataclass(frozen=True)
class Run:
    """What a program did: `counted` holds the reasons whose counters moved, `context` the struct __sk_buff it left."""

    verdict: int
    packet: bytes
    counted: dict[Reason, int]
    context: bytes

    @property
    def dissected(self) -> Packet:
        return Ether(self.packet)

    @property
    def priority(self) -> int:
        return int(struct.unpack_from("=I", self.context, SKB_PRIORITY_OFFSET)[0])

    @property
    def departure_ns(self) -> int:
        return int(struct.unpack_from("=Q", self.context, SKB_TSTAMP_OFFSET)[0])


class Machine:
    """A dataplane on a veth in a namespace of its own, with one key."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.namespace = Namespace()
        with self.namespace.entered():
            add_veth("roce0", "far0")
            self._where = loader.load("roce0", settings).where
        self.maps = Maps(self._where)
        self.steering = Steering(self.maps)
        self._open_programs()
        self.reset()

    def _open_programs(self) -> None:
        self._xdp = libbpf.get(self.pin("xdp_ingress"))
        self._tc = libbpf.get(self.pin("tc_egress"))
        self._agent = BpfObject(FROM_AGENT)
        control_fd = libbpf.get(self.pin("control"))
        self._agent.reuse_map("control", control_fd)
        os.close(control_fd)
        self._agent.load()
        libbpf.map_update(self._agent.map_fd("egress"), 0, self._tc.to_bytes(4, sys.byteorder))

    def pin(self, name: str) -> Path:
        """Where a program or a map is pinned."""
        return self._where.path / name

    @property
    def from_agent(self) -> int:
        """Egress for packets of the agent's own socket, open as long as the programs are."""
        return self._agent.program_fd("tc_from_agent")

    def reopen(self) -> None:
        """Run the programs that are pinned now."""
        self._close_programs()
        self._open_programs()

    def _close_programs(self) -> None:
        self._agent.close()
        for fd in (self._xdp, self._tc):
            os.close(fd)

    def close(self) -> None:
        """Unload it."""
        self._close_programs()
        self.maps.close()
        self.namespace.close()

    def reset(self) -> None:
        """As after loading, but for the counters, and with KEY under KEY_ID; no packet is sampled."""
        self.maps.slots[:] = np.zeros((), dtype=abi.SLOT)
        for index in range(abi.KEYS):
            self.maps.drop_key(index)
        self.maps.set_key(KEY_ID, KEY)
        self.maps.clear_clock()
        self.maps.write_base(ref_mono_ns=0, ahead_ns=0, rate=0.0)
        for key in self.steering.all():
            self.steering.unset(key)
        self.maps.control[0] = control.initial()
        self.maps.control["sample_below"] = 0
        maps = self.maps
        for records in (
            *maps.qps.values(),
            maps.paths,
            maps.samples,
            maps.events,
            maps.bursts,
            maps.burst_starts,
            maps.slices,
            maps.slice_table,
        ):
            records[:] = np.zeros((), dtype=records.dtype)

    def ingress(self, packet: Packet | bytes, linear: int | None = None) -> Run:
        """XDP, with so many bytes of the packet in the linear part, or all of it.

        Raises:
            OSError: EINVAL where the kernel cannot make such a packet.
        """
        context = bytearray(XDP_CONTEXT_BYTES if linear is not None else 0)
        if linear is not None:
            struct.pack_into("=I", context, XDP_DATA_END_OFFSET, linear)
        return self._run(self._xdp, packet, context)

    def egress(self, packet: Packet | bytes, mark: int = abi.MARK) -> Run:
        """tc egress, for a packet of that mark from a socket of the agent's."""
        return self._run(self.from_agent, packet, _skb_context(mark=mark))

    def send(self, packet: Packet, times: int) -> None:
        """tc egress for a template of the agent's, over and over again."""
        context = bytes(_skb_context(mark=abi.MARK))
        libbpf.prog_test_run(self.from_agent, bytes(packet), ctx=context, repeat=times)

    def leave(self, packet: Packet | bytes, *, mark: int = 0, gso_size: int = 0, summed: bool = False) -> Run:
        """tc egress, for somebody else's packet.

        Args:
            packet: it.
            mark: what its socket has set.
            gso_size: of each of the datagrams in the buffer.
            summed: the buffer has the sum of all its bytes, as NICs leave it, and must have it afterwards.

        Raises:
            OSError: EBADMSG where the sum is wrong afterwards, EINVAL where the kernel cannot make such a packet.
        """
        flags = CHECKSUM_COMPLETE if summed else 0
        return self._run(self._tc, packet, _skb_context(mark=mark, gso_size=gso_size), flags)

    def leave_as(self, packet: Packet | bytes, context: bytearray) -> Run:
        """tc egress, for a packet with that struct __sk_buff from a socket of the agent's."""
        return self._run(self.from_agent, packet, context)

    def repeat(self, direction: Direction, packet: Packet | bytes, times: int) -> None:
        """A packet over and over again, on this thread's CPU, as it was left the time before."""
        program = self._tc if direction == Direction.EGRESS else self._xdp
        libbpf.prog_test_run(program, bytes(packet), repeat=times)

    def _run(self, program: int, packet: Packet | bytes, context: bytearray, flags: int = 0) -> Run:
        before = self.maps.counters()
        verdict, out, _ = libbpf.prog_test_run(program, bytes(packet), ctx=context, flags=flags)
        after = self.maps.counters()
        moved = {Reason[name.upper()]: n - before[name] for name, n in after.items() if n != before[name]}
        return Run(verdict, out, moved, bytes(context))

    def steer(self, packet: Packet, wanted: Steer) -> None:
        """Have the queue pair of a packet take a path."""
        self.steering.set(qp_key(packet), wanted)

    def qp(self, direction: Direction) -> NDArray[np.void]:
        """The only queue pair of a direction, dtype `abi.QP`."""
        found: NDArray[np.void] = self.maps.qps[direction][self.maps.qps[direction]["tag"] != 0]
        assert len(found) == 1
        return found[0]

    def slot(self, seq: int) -> NDArray[np.void]:
        """The slot of a sequence number."""
        record: NDArray[np.void] = self.maps.slots[seq % abi.SLOTS]
        return record

    def expect_reply(self, template: Packet, t1: int) -> Packet:
        """Pretend that a request left at t1; returns it, signed."""
        sent = signed(template, t1)
        seq = sent[Probe].seq
        slot = self.slot(seq)
        slot["t1"] = t1
        slot["request_mac"] = int.from_bytes(sent[Probe].mac.to_bytes(8, "big"), "little")
        slot["reply_port"] = sent[Probe].reply_port
        slot["tag"] = seq << 32 | SlotState.SENT
        return sent

    def state(self, seq: int) -> tuple[int, SlotState]:
        """The sequence number in a slot, and how far it is."""
        tag = int(self.slot(seq)["tag"])
        return tag >> 32, SlotState(tag & 0xFFFFFFFF)


def _skb_context(*, mark: int = 0, gso_size: int = 0) -> bytearray:
    context = bytearray(SKB_CONTEXT_BYTES)
    struct.pack_into("=I", context, SKB_MARK_OFFSET, mark)
    struct.pack_into("=I", context, SKB_GSO_SIZE_OFFSET, gso_size)
    return context


def qp_key(packet: Packet) -> QpKey:
    """The queue pair that a packet goes to."""
    ip = packet[IP] if IP in packet else packet[IPv6]
    return QpKey(ip_address(ip.dst), packet[BTH].dqpn)


@contextmanager
def machine(settings: Settings | None = None) -> Iterator[Machine]:
    """A machine for a while."""
    made = Machine(settings)
    try:
        yield made
    finally:
        made.close()
