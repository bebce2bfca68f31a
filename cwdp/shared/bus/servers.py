"""The servers of a bus: told as URLs with commas between them, tried at random, each once before any is tried again."""

import random
import re
from collections import deque
from urllib.parse import urlsplit

from cwdp.errors import ConfigError

CONNECT_FIRST_S, CONNECT_MAX_S = 2, 10
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.1, 5.0

HINT = "for instance nats://127.0.0.1:4222, or nats://10.0.0.1:4222,nats://10.0.0.2:4222 for several servers"


def server_urls(bus: str) -> list[str]:
    """The servers that a bus can be reached at, each as nats://HOST:PORT or tls://HOST:PORT.

    Raises:
        ConfigError: one is of another form, or is told twice.
    """
    urls = [url.strip() for url in bus.split(",")]
    for url in urls:
        if not _is_url(url):
            raise ConfigError(f"{shown(url)!r} is no bus URL", HINT)
        if urls.count(url) > 1:
            raise ConfigError(f"{shown(url)!r} is told twice", "name each server of the bus once")
    return urls


def shown(bus: str) -> str:
    """The URLs as people may see them."""
    return re.sub(r"//[^@/,]*@", "//", bus)


class Servers:
    """Which server of a bus to try next.

    Args:
        bus: their URLs, as `server_urls` reads them.
    """

    def __init__(self, bus: str) -> None:
        self._urls = server_urls(bus)
        self._left: deque[str] = deque()
        self._last = ""

    def __len__(self) -> int:
        return len(self._urls)

    def next(self) -> str:
        """Another one than the last time, where there is another."""
        if not self._left:
            order = random.sample(self._urls, len(self._urls))
            if len(order) > 1 and order[0] == self._last:
                order.append(order.pop(0))
            self._left.extend(order)
        self._last = self._left.popleft()
        return self._last


class Patience:
    """How long to wait for a server and between tries: longer each time that all have been tried in vain.

    Not only the servers may be slow to answer, but also this host to do its own part.
    """

    def __init__(self, servers: int) -> None:
        self._servers, self._failures = servers, 0

    @property
    def connect_s(self) -> int:
        """What each step towards a connection may take."""
        return min(CONNECT_MAX_S, CONNECT_FIRST_S << self._rounds)

    def failed(self) -> float:
        """Note a failure; how long to wait before the next try, in seconds."""
        delay_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * (1 << self._rounds))
        self._failures += 1
        return delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures = 0

    @property
    def _rounds(self) -> int:
        return min(16, self._failures // self._servers)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_bare = parts.path in ("", "/") and not (parts.query or parts.fragment) and " " not in url
        return bool(parts.scheme in ("nats", "tls") and parts.hostname and parts.port != 0 and is_bare)
    except ValueError:
        return False
