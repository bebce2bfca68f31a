"""What is computed of a thousand queue pairs that are ordered to move, and how the orders are given."""

import socket
import threading
from collections import Counter

from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import MOVE, MOVED, Kind
from tools.rdma.scenarios.shim_thousand import Round, carried_out, together
from tools.rdma.testbed.arrivals import packets_by_port

ORDERS = 500


def test_a_figure_is_the_median_of_rounds_and_the_longest_of_all() -> None:
    rounds = [Round([n, n, n], [2 * n], Counter({0: 3})) for n in (1.0, 5.0, 90.0)]
    assert together(rounds) == {
        "ordered": 9,
        "errors": {"0": 9},
        "done_ms": {"p50": 5.0, "p99": 5.0, "max": 90.0},
        "each_us": {"p50": 10.0, "p99": 10.0, "max": 180.0},
    }


def test_where_nothing_was_moved_there_are_errors_and_no_figures() -> None:
    found = together([Round([], [], Counter({110: 2}))])
    assert found == {"ordered": 2, "errors": {"110": 2}, "done_ms": {}, "each_us": {}}


def test_every_order_is_given_and_every_answer_taken_in() -> None:
    """By programs whose sockets hold a part of them only, and that tell of something else between."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    threads = [threading.Thread(target=_answer, args=(theirs,)) for _, theirs in pairs]
    for thread in threads:
        thread.start()
    orders = {
        ours: [shimwire.move("rxe1", qpn, qpn, 0, 50_000, with_sqd=True) for qpn in range(ORDERS)]
        for ours, _ in pairs
    }
    answers = carried_out(orders)
    for thread in threads:
        thread.join()
    for pair in pairs:
        for sock in pair:
            sock.close()
    assert Counter(one.qpn for _, one in answers) == dict.fromkeys(range(ORDERS), 2)
    assert [at_ns for at_ns, _ in answers] == sorted(at_ns for at_ns, _ in answers)


def _answer(sock: socket.socket) -> None:
    for _ in range(ORDERS):
        magic, _, device, qpn, _, number, *_ = MOVE.unpack(sock.recv(MOVE.size))
        sock.send(shimwire.head(Kind.QP_STATE, "rxe1", qpn, 3))
        sock.send(MOVED.pack(magic, Kind.MOVED, device, qpn, 3, number, 1_000, 0, 3))


def test_packets_are_read_from_what_tc_lists() -> None:
    listed: list[dict[str, object]] = [
        {"protocol": "ip", "pref": 77, "kind": "flower", "chain": 0},
        {
            "protocol": "ip",
            "options": {
                "handle": 1,
                "keys": {"eth_type": "ipv4", "dst_port": 4791, "src_port": 50_001},
                "actions": [{"order": 1, "kind": "gact", "stats": {"bytes": 100, "packets": 7}}],
            },
        },
    ]
    assert packets_by_port(listed) == {50_001: 7}
