"""The settings of uprobes."""

from typing import Annotated

import msgspec
from msgspec import Meta

Cgroup = Annotated[str, Meta(pattern=r"^/(?!.*\.\.)\S*$")]


class UprobesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Programs of these cgroups, and of those below them, are traced.

    Attributes:
        cgroups: their paths as /proc/PID/cgroup has them; none is off.
    """

    cgroups: Annotated[list[Cgroup], Meta(max_length=16)] = []
