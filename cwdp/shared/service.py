"""What a long-running service needs of its surroundings: one-line logs, and word to systemd."""

import contextlib
import logging
import os
import socket
import sys
import time


class _LineFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER MESSAGE` on one line, UTC; messages carry `key=value` pairs."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; a traceback's lines are joined by ` | `."""
        return " | ".join(super().format(record).splitlines())


def log_to_stderr(level: str = "info") -> None:
    """Send this process's logs to standard error, from `level` (a name such as `info`) up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # cwdp.bus says what matters of it


def notify(state: str) -> None:
    """Tell systemd, where it started this process: `READY=1`, `STOPPING=1`, `STATUS=...` (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(state.encode(), address)
