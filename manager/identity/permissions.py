"""What each kind of user may say and hear on the bus, and what the two accounts let through to each other.

Managers and JetStream are in the account `CTRL`, hosts in `FLEET`. What hosts publish comes over as a service only:
the reply subject of a message is not checked by permissions, and in one account, or by a stream, a host could have the
server write wherever it likes by it. Names are filled in by the server from each user's own token.
"""

from typing import Any

from cwdp.shared.bus.messages import DESIRED_BUCKET
from cwdp.shared.bus.subjects import PREFIX
from cwdp.shared.identity.credential import INBOX, JOINING_INBOX

UP = f"{PREFIX}.*.up.>"
DOWN = f"{PREFIX}.*.down.>"
JOIN = f"{PREFIX}.*.join.*"
DOCUMENTS = f"$JS.API.DIRECT.GET.KV_{DESIRED_BUCKET}.$KV.{DESIRED_BUCKET}.>"

_POD, _HOST = "{{tag(pod)}}", "{{name()}}"
_DOCUMENT = f"$JS.API.DIRECT.GET.KV_{DESIRED_BUCKET}.$KV.{DESIRED_BUCKET}.{_POD}.{_HOST}"
_NO_LIMIT = {"subs": -1, "data": -1, "payload": -1}

HOST_TEMPLATE: dict[str, Any] = {
    "pub": {"allow": [f"{PREFIX}.{_POD}.up.{_HOST}.>", _DOCUMENT, f"{_DOCUMENT}.*"]},
    "sub": {"allow": [f"{PREFIX}.{_POD}.down.{_HOST}.>", f"{INBOX}.{_POD}.{_HOST}.>"]},
    **_NO_LIMIT,
}
JOINER_TEMPLATE: dict[str, Any] = {
    "pub": {"allow": [f"{PREFIX}.{_POD}.join.{_HOST}"]},
    "sub": {"allow": [f"{JOINING_INBOX}.{_POD}.{_HOST}.>"]},
    **_NO_LIMIT,
}


def exports() -> list[dict[str, Any]]:
    """What managers let hosts reach."""
    services = [
        {"name": name, "subject": name, "type": "service", "response_type": "Singleton"} for name in _SERVICES
    ]
    return [*services, {"name": DOWN, "subject": DOWN, "type": "stream"}]


def imports(control: str) -> list[dict[str, Any]]:
    """What hosts reach in the managers' account, given its public key."""
    services = [{"name": name, "subject": name, "account": control, "type": "service"} for name in _SERVICES]
    return [*services, {"name": DOWN, "subject": DOWN, "account": control, "type": "stream"}]


_SERVICES = (UP, JOIN, DOCUMENTS)
