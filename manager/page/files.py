"""The page's files, read once and compressed once."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".md": "text/plain", "": "text/plain"}


@dataclass(frozen=True)
class File:
    """One of them, as it is sent."""

    content_type: str
    body: bytes
    compressed: bytes
    etag: str


def read_files(directory: Path = STATIC) -> dict[str, File]:
    """All files below a directory, by their paths within it."""
    return {
        path.relative_to(directory).as_posix(): _read(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def answer(file: File, request: web.Request) -> web.Response:
    """A file for a browser, or that it has that already."""
    headers = {"ETag": file.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("If-None-Match") == file.etag:
        return web.Response(status=304, headers=headers)
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=file.body, content_type=file.content_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return web.Response(body=file.compressed, content_type=file.content_type, headers=headers)


def _read(path: Path) -> File:
    body = path.read_bytes()
    content_type = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return File(content_type, body, gzip.compress(body, mtime=0), etag)
