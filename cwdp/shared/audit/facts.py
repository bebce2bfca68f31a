"""What is read of a host for an audit: facts, without a verdict, so that old ones can be judged anew."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

FACTS_VERSION = 1
SubjectKind = Literal["host", "nic", "rdma", "gpu"]
Role = Literal["back", "front", ""]
Value = bool | int | float | str | Sequence[int | float | str]
"""Lists, of numbers or texts. One kind of array only, as msgspec reads no union of two."""


class Subject(Struct, frozen=True, kw_only=True):
    """A part of a host that has facts of its own.

    Attributes:
        kind: what it is; the first word of its facts' names in the catalogue.
        name: of it on its host: `eth0`, `mlx5_0/1` (device and port), `0` (a GPU's index); "" for the host itself.
        role: `back` for a NIC of the fabric between GPUs, `front` for that of the default route, with
            RDMA devices as their NIC; "" for what is neither.
        facts: by name in the catalogue, without its first word. One whose name is not there is ignored.
        missing: why a fact is not available, by the same names. A fact in neither does not apply to this subject.
    """

    kind: SubjectKind
    name: str = ""
    role: Role = ""
    facts: dict[str, Value] = {}
    missing: dict[str, str] = {}


class HostFacts(Struct, frozen=True, kw_only=True):
    """All facts of a host.

    Attributes:
        version: of the catalogue; `FACTS_VERSION` of who has read them.
        taken_s: when they were read, in seconds of Unix time.
        subjects: the host itself first.
        troubles: what could not be read at all, an area and why, such as {"pci": "timed out after 10 s"}.
            Facts of that area are in no subject's `missing`.
    """

    host: str
    version: int = FACTS_VERSION
    taken_s: float
    subjects: list[Subject]
    troubles: dict[str, str] = {}
