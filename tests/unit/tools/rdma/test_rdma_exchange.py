"""How the two ends of the verbs transfer learn each other's address."""

import json
import socket

from tools.rdma.testbed.pyverbs_client import exchange


def test_what_the_other_end_says_early_is_not_lost() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rwb") as channel:
        theirs.sendall(b'{"qpn": 20}\n"ready"\n')
        assert exchange(channel, {"qpn": 17}) == {"qpn": 20}
        assert exchange(channel, "ready") == "ready"
        heard = theirs.recv(100).splitlines()
    assert [json.loads(line) for line in heard] == [{"qpn": 17}, "ready"]
