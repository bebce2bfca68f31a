"""What is amiss in the InfiniBand subnets that are read, as `cwdp ib audit` finds it; a description is one node's of all. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from manager.audit.checks.model import Severity
from manager.audit.results import FABRIC, Result
from manager.fabric.routes import is_nic
from manager.ib.audit import BALANCE, NAMES, Finding, findings_of, names_twice, subjects_of
from manager.ib.subnets import SubnetNow

_SIGN = re.compile(" [->] ")
_CABLE = "clean, reseat or replace the cable; see what both ends are set to"


class _Check(NamedTuple):
    severity: Severity
    expected: str
    why: str
    mend: str
    reference: str


CHECKS = {
    "ib-state": _Check(
        "fail",
        "active",
        "a port that is not active sends nothing",
        "is the subnet manager up? sminfo tells who is it",
        "InfiniBand architecture specification, port states",
    ),
    "ib-silent": _Check(
        "warn",
        "an answer",
        "what does not answer is not in the subnet, nor is what is behind it",
        "see the node at the far end: its power, its driver, its firmware",
        "InfiniBand architecture specification, subnet management",
    ),
    "ib-width": _Check(
        "fail",
        "the width that both ends can do",
        "all flows over it wait for the lanes that are not there",
        _CABLE,
        "InfiniBand architecture specification, link width",
    ),
    "ib-speed": _Check(
        "fail",
        "the speed that both ends can do",
        "all flows over it wait for a link that is slower than the others",
        _CABLE,
        "InfiniBand architecture specification, link speed",
    ),
    "ib-lmc": _Check(
        "warn",
        "LMC 1 or more",
        "a port with one LID has one way to each other, and no other when a link fails",
        "lmc in opensm's configuration: 1 makes two LIDs a port, 2 four; not with its engine ftree",
        "InfiniBand architecture specification, LID mask control; opensm(8)",
    ),
    NAMES: _Check(
        "warn",
        "a description of its own",
        "nobody can tell which node is meant",
        "rdma-ndd names hosts by their host names; give switches names of their own",
        "rdma-ndd(8)",
    ),
    "ib-routes": _Check(
        "fail",
        "a route to each",
        "queue pairs between these hosts cannot be connected, or die of it",
        "see the subnet manager's log; have it make routes anew",
        "InfiniBand architecture specification, linear forwarding tables; opensm(8)",
    ),
    BALANCE: _Check(
        "warn",
        "at most 1.25 times the even share",
        "a collective of all hosts waits for the link with the most flows",
        "another routing engine of the subnet manager; see first whether links beside it are gone",
        "Zahavi and others, Optimized InfiniBand fat-tree routing (2010); opensm(8)",
    ),
}


def judged(subnets: Sequence[SubnetNow]) -> tuple[list[Result], dict[str, int]]:
    """Results, and how many ports, links or nodes pass each check; no check is named where no subnet is known.

    What a reader tells that is not fresh may be another by now, so that all of its subnet is `unknown`. Of links with more than
    their even share the worst alone has a result, as one change of routes makes many uneven at once.
    """
    fresh = [one for one in subnets if one.is_fresh]
    passed: Counter[str] = Counter()
    results = [_unknown(one, check) for one in subnets if not one.is_fresh for check in CHECKS]
    found = [(finding, "") for finding in names_twice([(one.subnet, one.names) for one in fresh])]
    for one in fresh:
        passed.update(subjects_of(one.subnet))
        found += [(each, _whole(one)) for each in findings_of(one.subnet, one.names) if each.check != NAMES]
    for finding, whole in found:
        subjects = finding.about or (whole,)
        passed[finding.check] -= len(subjects)
        told = subjects[:1] if finding.check == BALANCE else subjects
        results += dict.fromkeys(_result(finding, subject) for subject in told)
    return results, {check: max(count, 0) for check, count in passed.items()}


def _whole(one: SubnetNow) -> str:
    """The subject of what is about no port or link of a subnet."""
    return f"InfiniBand subnet read by {one.reader}"


def _place(subject: str) -> tuple[str, str]:
    """The host of a port, link or node, and what it is called there; a NIC's link is its NIC."""
    nic = next((end for end in _SIGN.split(subject) if is_nic(end)), "")
    host, _, device = nic.partition("/")
    return (host, device) if nic else (FABRIC, subject)


def _result(finding: Finding, subject: str) -> Result:
    host, name = _place(subject)
    check = CHECKS[finding.check]
    return Result(
        check=finding.check,
        host=host,
        subject=name,
        verdict=finding.verdict,
        severity=check.severity,
        found=finding.found,
        expected=check.expected,
        why=check.why,
        mend=check.mend,
        reference=check.reference,
    )


def _unknown(one: SubnetNow, name: str) -> Result:
    check = CHECKS[name]
    return Result(
        check=name,
        host=FABRIC,
        subject=_whole(one),
        verdict="unknown",
        severity=check.severity,
        why=check.why,
        mend="see whether that host and its agent run, and cwdp event for ib_failed; have a second host read the subnet",
        reason="its reader tells nothing now, or cannot read it",
    )
