"""Carries out what choosers decide, on the hosts of a lab: delays out of the dataplanes' maps, steering into them."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import SlotState
from cwdp.dataplane.addresses import words_address
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.dataplane.steering.steering import QpKey, Steer, Steering
from cwdp.shared.addresses import Address
from tools.experiments.contention.rivals import Choice, Chooser, MakeChooser
from tools.lab import Lab
from tools.lab.network import netns
from tools.roce.flows import Flow

ROUND_S = 0.03
"""About the round trip of a lab whose queues hold some packets; two pulses of a path."""

STATE_MASK = np.uint64(3)
PROBING_QPN = abi.QPN_MAX - 1
"""No generator's queue pair has it; steering one that never sends has its two paths watched."""

Delays = dict[tuple[Address, int], NDArray[np.float64]]


class DelayReader:
    """One-way delays of a NIC's pulses, by destination and source port, each taken once."""

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._pulses = maps.slots[abi.SLOTS :]
        self._taken_until_ns = int(self._pulses["t4"].max())

    def take(self) -> Delays:
        """In ns, of the pulses that were answered since the last call."""
        arrived = self._pulses["t4"]
        new = self._pulses[arrived > self._taken_until_ns]
        is_done = new["tag"] & STATE_MASK == np.uint64(SlotState.DONE)
        new = new[is_done & (new["bound_ns"] != abi.BOUND_UNSYNCED)]
        if not len(new):
            return {}
        self._taken_until_ns = int(new["t4"].max())
        found: Delays = {}
        for number in np.unique(new["path"]):
            path = self._maps.paths[number]
            delays = new["fwd_owd_ns"][new["path"] == number].astype(np.float64)
            found[words_address(path["dst"]), int(path["sport"])] = delays
        return found


class Hands:
    """Choosers at work on the queue pairs of a lab, as a context: from entry to exit, in a thread of their own.

    Args:
        lab: a lab whose fleet is up; its planner must leave the queue pairs alone.
        flows: the queue pairs.
        make: makes each one's chooser.
        base_ns: delay of a path without queues.
        seed: of what the choosers draw.

    Attributes:
        moves: how often a queue pair was moved.
    """

    def __init__(self, lab: Lab, flows: Sequence[Flow], make: MakeChooser, base_ns: float, seed: int) -> None:
        self.moves = 0
        self._lab, self._flows = lab, flows
        rng = np.random.default_rng(seed)
        self._choosers: list[Chooser] = [make(flow.sport, base_ns, rng) for flow in flows]
        self._choices = [Choice(flow.sport) for flow in flows]
        self._stack = ExitStack()
        self._maps: dict[str, Maps] = {}
        self._readers: dict[str, DelayReader] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="hands", daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for host in self._lab.hosts:
                where = TreePath(netns.cookie(host.netns), host.nics[0].name)
                self._maps[host.name] = stack.enter_context(Maps(where))
                self._readers[host.name] = DelayReader(self._maps[host.name])
            stack.callback(self._let_go)
            for flow, choice in zip(self._flows, self._choices, strict=True):
                self._steer(flow, choice)
            self._stack = stack.pop_all()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._stack.close()
        if self._error is not None and error is None:
            raise self._error

    def _work(self) -> None:
        try:
            while not self._stopping.wait(ROUND_S):
                self._round({host: reader.take() for host, reader in self._readers.items()})
        except Exception as error:  # noqa: BLE001 - raised again where the context ends
            self._error = error

    def _round(self, delays: Mapping[str, Delays]) -> None:
        """One step of every queue pair."""
        for number, (flow, chooser) in enumerate(zip(self._flows, self._choosers, strict=True)):
            mine = delays[flow.source.host]
            choice = chooser.step(
                {port: found for (dst, port), found in mine.items() if dst == flow.target.address}
            )
            before, self._choices[number] = self._choices[number], choice
            if choice != before:
                self.moves += choice.sport != before.sport
                self._steer(flow, choice, before)

    def _steer(self, flow: Flow, choice: Choice, before: Choice | None = None) -> None:
        """Have a queue pair leave from its port, and the others watched."""
        with tree.locked():
            steering = Steering(self._maps[flow.source.host])
            if before is None or before.sport != choice.sport:
                steering.set(QpKey(flow.target.address, flow.remote_qpn), Steer(choice.sport))
            if choice.probed and (before is None or before.probed != choice.probed):
                first, second = choice.probed
                steering.set(self._probing(flow), Steer(first, second))

    def _let_go(self) -> None:
        with tree.locked():
            for flow in self._flows:
                steering = Steering(self._maps[flow.source.host])
                steered = steering.all()
                for key in (QpKey(flow.target.address, flow.remote_qpn), self._probing(flow)):
                    if key in steered:
                        steering.unset(key)

    def _probing(self, flow: Flow) -> QpKey:
        return QpKey(flow.target.address, PROBING_QPN - flow.id)
