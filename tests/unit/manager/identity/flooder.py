"""A process that floods the bus with a host's credential, as fast as it can: `flooder.py URL CREDENTIAL SUBJECT BYTES MESSAGES`.

What it sends is one message, over and over, so that making it takes no time. It ends when the server has it all.
"""

import asyncio
import secrets
import sys
from pathlib import Path

from cwdp.shared.bus.messages import Event, encode
from cwdp.shared.bus.packing import packed
from cwdp.shared.bus.session import dial, hang_up
from cwdp.shared.bus.subjects import host_token_of
from cwdp.shared.identity.credential import load

AT_ONCE_BYTES = 1 << 18
FLUSH_S = 50


def message(host: str, size: int) -> bytes:
    """An event of about so many bytes, which cannot be packed into much less."""
    detail = secrets.token_urlsafe(size)[:size]
    return packed(encode(Event(host=host, local_ns=1, kind="link_up", nic=None, detail=detail)))


async def flood(url: str, credential: Path, subject: str, size: int, count: int) -> None:
    """Send so many; by the connection itself, as its client would take much longer to write them."""
    client = await dial(url, load(credential), name="flooder")
    client.options["max_outstanding_pings"] = 1_000  # answers come behind what the server makes it wait for
    data = message(host_token_of(subject), size)
    one = f"PUB {subject} {len(data)}\r\n".encode() + data + b"\r\n"
    at_once = max(1, AT_ONCE_BYTES // len(one))
    for sent in range(0, count, at_once):
        client._transport.write(one * min(at_once, count - sent))
        await client._transport.drain()
    await client.flush(FLUSH_S)
    await hang_up(client)


if __name__ == "__main__":
    url, credential, subject, size, count = sys.argv[1:]
    asyncio.run(flood(url, Path(credential), subject, int(size), int(count)))
