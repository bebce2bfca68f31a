"""The subjects of the bus: what goes up from a host of a pod, and what comes down to it."""

import re

PREFIX = "cwdp.v2"
PODS = f"{PREFIX}.pods"
WANTS, GRANTED, EVIDENCE = "wants", "granted", "evidence"


def token(host: str) -> str:
    """A host name as one token of a bus subject: letters, digits, `-` and `_`; all else becomes `_`."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", host)


def up(pod: str, host: str, kind: str) -> str:
    """The subject on which a host says a kind of thing; `*` stands for every host, or pod."""
    return f"{PREFIX}.{_name(pod)}.up.{_name(host)}.{kind}"


def down(pod: str, host: str, kind: str) -> str:
    """The subject on which a host is told a kind of thing."""
    return f"{PREFIX}.{_name(pod)}.down.{_name(host)}.{kind}"


def joining(pod: str, host: str) -> str:
    """The subject on which a host asks to be taken in."""
    return f"{PREFIX}.{_name(pod)}.join.{_name(host)}"


def pod_report(pod: str) -> str:
    """The subject on which a pod's leader tells the others' of it."""
    return f"{PODS}.{_name(pod)}"


def pod_wants(root: str) -> str:
    """The subject on which pods' leaders tell the root's what they want of links that they share."""
    return f"{PODS}.{WANTS}.{_name(root)}"


def pod_granted(pod: str) -> str:
    """The subject on which the root tells a pod's leader what it may use of them."""
    return f"{PODS}.{GRANTED}.{_name(pod)}"


def pod_evidence(root: str) -> str:
    """The subject on which pods' leaders tell the root's what became of their probes."""
    return f"{PODS}.{EVIDENCE}.{_name(root)}"


def pod_findings(pod: str) -> str:
    """The subject on which a pod's leader tells the others' which links are at fault."""
    return f"{PODS}.{_name(pod)}.findings"


def pod_hosts(pod: str) -> str:
    """The subject on which a pod's leader tells the others' of its hosts."""
    return f"{PODS}.{_name(pod)}.hosts"


def pod_traces(pod: str) -> str:
    """The subject on which other pods' leaders tell a pod's of paths to its hosts."""
    return f"{PODS}.{_name(pod)}.traces"


def is_of_pod(subject: str) -> bool:
    """Whether leaders tell each other something there; hosts may not."""
    if not subject.startswith(f"{PODS}."):
        return False
    rest = subject.removeprefix(f"{PODS}.").split(".")
    return len(rest) == 1 or (
        len(rest) == 2
        and (rest[0] in (WANTS, GRANTED, EVIDENCE) or rest[1] in ("hosts", "traces", "findings"))
    )


def document_key(pod: str, host: str) -> str:
    """Under which a host's document lies."""
    return f"{_name(pod)}.{_name(host)}"


def host_token_of(subject: str) -> str:
    """Whose subject it is, as `token` writes it; empty where it is nobody's."""
    tokens = subject.split(".")
    return tokens[4] if len(tokens) > 4 else ""


def kind_of(subject: str) -> str:
    """What kind of thing is told on a subject."""
    return subject.rpartition(".")[2]


def _name(text: str) -> str:
    return text if text == "*" else token(text)
