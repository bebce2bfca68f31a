"""The servers of a bus: told as URLs with commas between them, tried at random, each once before any is tried again."""

import random
import re
from collections import deque
from urllib.parse import urlsplit

from cwdp.errors import ConfigError

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


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_bare = parts.path in ("", "/") and not (parts.query or parts.fragment) and " " not in url
        return bool(parts.scheme in ("nats", "tls") and parts.hostname and parts.port != 0 and is_bare)
    except ValueError:
        return False
