"""The options of the qdisc fq (`TCA_FQ_*` of linux/pkt_sched.h), in the form of a plugin of pyroute2, which lacks it."""

from typing import Any

from pyroute2.netlink import nla
from pyroute2.netlink.rtnl import TC_H_ROOT

parent = TC_H_ROOT

_ATTRIBUTES = (
    ("TCA_FQ_UNSPEC", "none"),
    ("TCA_FQ_PLIMIT", "uint32"),
    ("TCA_FQ_FLOW_PLIMIT", "uint32"),
    ("TCA_FQ_QUANTUM", "uint32"),
    ("TCA_FQ_INITIAL_QUANTUM", "uint32"),
    ("TCA_FQ_RATE_ENABLE", "uint32"),
    ("TCA_FQ_FLOW_DEFAULT_RATE", "uint32"),
    ("TCA_FQ_FLOW_MAX_RATE", "uint32"),
    ("TCA_FQ_BUCKETS_LOG", "uint32"),
    ("TCA_FQ_FLOW_REFILL_DELAY", "uint32"),
    ("TCA_FQ_ORPHAN_MASK", "uint32"),
    ("TCA_FQ_LOW_RATE_THRESHOLD", "uint32"),
    ("TCA_FQ_CE_THRESHOLD", "uint32"),
    ("TCA_FQ_TIMER_SLACK", "uint32"),
    ("TCA_FQ_HORIZON", "uint32"),
    ("TCA_FQ_HORIZON_DROP", "uint8"),
)

options = type("FqOptions", (nla,), {"nla_map": _ATTRIBUTES})


def get_parameters(wanted: dict[str, Any]) -> dict[str, Any]:
    """The attributes of those settings that were given, by the kernel's names in lower case."""
    names = (name for name, _ in _ATTRIBUTES)
    given = ((name, wanted.get(name.removeprefix("TCA_FQ_").lower())) for name in names)
    return {"attrs": [[name, value] for name, value in given if value is not None]}
