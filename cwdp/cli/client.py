"""How commands reach the manager: HTTP over its unix socket, or over TCP with a credential (`credentials.py`)."""

import http.client
import json
import os
import socket
from collections.abc import Mapping
from glob import glob
from typing import Any
from urllib.parse import urlencode, urlsplit

from cwdp.cli import credentials
from cwdp.errors import ConfigError, ManagerError, RefusedError

SOCKETS = ("/run/cwdp/manager.sock", "/run/cwdp/lab/*/manager.sock", "/run/cwdp/lab/*/m[1-9].sock")
TIMEOUT_S = 5.0
BAD_REQUEST = 400


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


class ManagerClient:
    """A manager at `url`: unix:///PATH, https://HOST:PORT, on loopback http://HOST:PORT; without one, the only socket.

    Raises:
        ConfigError: the URL is of another form.
        ManagerError: there is no socket, or there are several.
    """

    def __init__(self, url: str | None) -> None:
        self.url = url or f"unix://{_only_socket()}"
        parts = urlsplit(self.url)
        is_tcp = parts.scheme in ("http", "https") and parts.hostname
        if not (parts.scheme == "unix" and parts.path) and not is_tcp:
            raise ConfigError(
                f"{self.url!r} is no manager URL",
                "give unix:///PATH, https://HOST:PORT, or http://HOST:PORT of loopback",
            )

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """The decoded answer.

        Raises:
            ManagerError: the manager does not answer.
            RefusedError: it refused.
        """
        return self._ask("GET", path, query)

    def put(self, path: str, document: Mapping[str, Any], *, why: str | None = None) -> Any:
        """Have the manager keep something; what it made of it. Raises what `get` raises."""
        return self._ask("PUT", path, _query(why), json.dumps(document))

    def delete(self, path: str, query: Mapping[str, str | int], *, why: str | None = None) -> Any:
        """Have the manager drop something. Raises what `get` raises."""
        return self._ask("DELETE", path, {**query, **_query(why)})

    def _ask(
        self, method: str, path: str, query: Mapping[str, str | int] | None = None, body: str | None = None
    ) -> Any:
        connection, headers = self._connection(), self._headers()
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, body, headers)
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise credentials.explained(error, self.url) or ManagerError(
                f"no manager answers at {self.url}: {_why(error)}", _next_step(error, self.url)
            ) from error
        finally:
            connection.close()
        return self._decoded(answer.status, said)

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return _UnixConnection(parts.path)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=credentials.tls()
            )
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)

    def _headers(self) -> dict[str, str]:
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return {}
        return credentials.headers(parts.hostname or "", is_tls=parts.scheme == "https")

    def _decoded(self, status: int, body: bytes) -> Any:
        try:
            answer = json.loads(body)
        except ValueError as error:
            raise ManagerError(
                f"what answers at {self.url} is no cwdp manager", "check the URL given with --manager"
            ) from error
        if status >= 400:
            said = answer if isinstance(answer, dict) else {}
            detail, hint = (
                said.get("error", f"HTTP status {status}"),
                said.get("hint") or "correct the arguments",
            )
            raise RefusedError(f"the manager refused: {detail}", hint, is_asked_wrongly=status == BAD_REQUEST)
        return answer


def _query(why: str | None) -> dict[str, str | int]:
    """What a change is for, as all changes say it."""
    return {} if why is None else {"why": why}


def _only_socket() -> str:
    found = sorted(path for pattern in SOCKETS for path in glob(pattern))  # noqa: PTH207 - absolute patterns
    if not found:
        raise ManagerError(
            "no manager runs on this host",
            "start one with `cwdp manager run`, raise a lab, or name one with --manager URL or CWDP_MANAGER",
        )
    if len(found) > 1:
        listed = "\n".join(f"--manager unix://{path}" for path in found)
        raise ManagerError("several managers run on this host", f"choose one of\n{listed}")
    return found[0]


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _next_step(error: Exception, url: str) -> str:
    if isinstance(error, http.client.HTTPException) and url.startswith("http://"):
        return "managers speak HTTPS beyond loopback: give --manager https://HOST:PORT"
    if isinstance(error, PermissionError):
        return "its socket may be used by root and its group only"
    return "start it with `cwdp manager run`, or name another with --manager URL"
