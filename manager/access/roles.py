"""What somebody may do."""

from enum import IntEnum
from typing import Literal


class Role(IntEnum):
    """What somebody may do; each may do what those before may."""

    NONE = 0
    METRICS = 1
    """Read `/metrics`, and nothing else."""

    VIEWER = 2
    OPERATOR = 3
    ADMINISTRATOR = 4

    @property
    def title(self) -> str:
        """As people are told."""
        return self.name.lower()


RoleName = Literal["metrics", "viewer", "operator", "administrator"]


def role_of(name: RoleName) -> Role:
    """The role of a name."""
    return Role[name.upper()]
