"""Requests that are no HTTP: who sends one is told so. The log is not, as it would hold what was sent, a token perhaps."""

import logging

from aiohttp.http_exceptions import HttpProcessingError


class _Readable(logging.Filter):
    """Lets through all but those."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is of something else."""
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


HTTP_LOG = logging.getLogger("cwdp.manager.http")
"""For what goes wrong at a listener."""

HTTP_LOG.addFilter(_Readable())
