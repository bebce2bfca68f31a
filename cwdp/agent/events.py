"""What happens on this host, told now or when there is a bus again."""

import logging
from collections import deque
from collections.abc import Callable

from cwdp.shared.bus.messages import Event, EventName

EVENTS_KEPT = 100

_log = logging.getLogger("cwdp.agent")


class Events:
    """Tells events; the last ones that could not be told are kept.

    Args:
        host: whose they are.
        now_local_ns: its clock.
        publish: sends one; False where it could not.
    """

    def __init__(self, host: str, now_local_ns: Callable[[], int], publish: Callable[[Event], bool]) -> None:
        self._host, self._now_local_ns, self._publish = host, now_local_ns, publish
        self._unsaid: deque[Event] = deque(maxlen=EVENTS_KEPT)

    def tell(self, kind: EventName, nic: str | None, detail: str) -> None:
        """Something happens now."""
        self.say(Event(host=self._host, local_ns=self._now_local_ns(), kind=kind, nic=nic, detail=detail))

    def say(self, event: Event) -> None:
        """Something happened."""
        _log.info("event kind=%s nic=%s detail=%s", event.kind, event.nic or "-", event.detail)
        self._send(event)

    def make_up(self) -> None:
        """Tell what could not be told."""
        unsaid = list(self._unsaid)
        self._unsaid.clear()
        for event in unsaid:
            self._send(event)

    def _send(self, event: Event) -> None:
        if not self._publish(event):
            self._unsaid.append(event)


class Troubles:
    """What is amiss now, so that what lasts is told once."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}

    def is_news(self, what: str, trouble: str) -> bool:
        """Whether a trouble is another one than before."""
        news = self._now.get(what) != trouble
        self._now[what] = trouble
        return news

    def end(self, what: str) -> None:
        """It is well again."""
        self._now.pop(what, None)
