"""What passes between a collection and the process that reads for it: frames of a length and MessagePack."""

from msgspec import Struct, msgpack

from cwdp.audit.growth import First
from cwdp.audit.notes import Notes
from cwdp.audit.subjects import Found
from cwdp.shared.audit.facts import Role

LENGTH_BYTES = 4
MOST_FRAME_BYTES = 8 << 20
SUBJECTS = "subjects"
"""The first area: which subjects there are, and their counters for the first time."""


class Order(Struct, frozen=True, kw_only=True):
    """What is to be read, in this order.

    Attributes:
        root: of a recorded tree; "" for the host itself.
        record: a folder in which what is read is written down; "" for none.
        roles: of NICs that are configured.
        found, first: of whoever has read `SUBJECTS`.
    """

    areas: list[str]
    root: str = ""
    record: str = ""
    roles: dict[str, Role] = {}
    found: Found = Found()
    first: First = First()


class Said(Struct, frozen=True, kw_only=True):
    """What the process says: that it begins with an area, or what it has read of it.

    Attributes:
        begins: whether it does.
        trouble: why nothing of the area can be read.
        found, first: of the area `SUBJECTS`.
    """

    area: str
    begins: bool = False
    notes: list[Notes] = []
    trouble: str = ""
    found: Found | None = None
    first: First | None = None


def framed(message: Struct) -> bytes:
    """A message with its length."""
    data = msgpack.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
