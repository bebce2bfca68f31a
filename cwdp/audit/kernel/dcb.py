"""Data centre bridging by rtnetlink: RTM_GETDCB of linux/dcbnl.h (IEEE 802.1Qaz)."""

import struct

from cwdp.audit.answers import Dcb
from cwdp.audit.unreadable import Unreadable, of_error
from cwdp.dataplane.kernel.netlink import ask, attribute, attributes, each_attribute

RTM_GETDCB, IEEE_GET = 78, 21
DCBMSG = struct.Struct("=BBH")
IFNAME, IEEE = 1, 13
ETS, PFC, APPLICATIONS, TRUST = 1, 2, 3, 11
APPLICATION, TRUSTED = 1, 3
APP = struct.Struct("=BBH")
CLASSES = 8
ETS_BYTES = 3 + 4 * CLASSES
"""Of `struct ieee_ets` up to `prio_tc`: willing, ets_cap, cbs, tc_tx_bw, tc_rx_bw, tc_tsa, prio_tc."""


def dcb(ifname: str) -> Dcb:
    """What a NIC's driver tells of it."""
    body = DCBMSG.pack(0, IEEE_GET, 0) + attribute(IFNAME, f"{ifname}\0".encode())
    try:
        answers = list(ask(RTM_GETDCB, body))
    except OSError as error:
        raise of_error(error) from error
    found = attributes(answers[0][DCBMSG.size :]).get(IEEE) if answers else None
    if found is None:
        raise Unreadable("the driver does not tell")
    return parse(found)


def parse(ieee: bytes) -> Dcb:
    """What lies in DCB_ATTR_IEEE."""
    told = attributes(ieee)
    ets, pfc = told.get(ETS, b""), told.get(PFC, b"")
    has_ets = len(ets) >= ETS_BYTES
    percent, _, algorithms, classes = (
        (list(ets[3 + i * CLASSES : 3 + (i + 1) * CLASSES]) for i in range(4)) if has_ets else (None,) * 4
    )
    return Dcb(
        pfc=pfc[1] if len(pfc) > 1 else None,
        algorithms=algorithms,
        percent=percent,
        classes=classes,
        applications=[
            [selector, protocol, priority]
            for kind, value in each_attribute(told.get(APPLICATIONS, b""))
            if kind == APPLICATION and len(value) >= APP.size
            for selector, priority, protocol in [APP.unpack_from(value)]
        ],
        trust=[value[0] for kind, value in each_attribute(told[TRUST]) if kind == TRUSTED and value]
        if TRUST in told
        else None,
    )
