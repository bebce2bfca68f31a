"""Browsers that have shown a token once: they cannot send it along with a stream of events, so they get a cookie.

A session is its token's: it ends with that, and with the manager. A cookie tells nothing of the token.
"""

import secrets
from collections import OrderedDict

from manager.access.grants import digest

ID_BYTES = 32
MOST = 4_096


class Sessions:
    """Those that are open; of too many the one that was longest unused is closed."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[str, str] = OrderedDict()

    def open(self, token_sha256: str) -> str:
        """A new one of a token, by what the browser shows from now on."""
        shown = secrets.token_urlsafe(ID_BYTES)
        self._tokens[digest(shown.encode())] = token_sha256
        while len(self._tokens) > MOST:
            self._tokens.popitem(last=False)
        return shown

    def find(self, shown: str) -> str | None:
        """The SHA-256 of the token of one; None where there is none."""
        key = digest(shown.encode())
        if key not in self._tokens:
            return None
        self._tokens.move_to_end(key)
        return self._tokens[key]

    def close(self, shown: str) -> None:
        """End one."""
        self._tokens.pop(digest(shown.encode()), None)
