"""How far an audit goes."""

from typing import Literal

Level = Literal["facts", "network"]
