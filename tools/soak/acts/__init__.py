"""Making each trouble in a lab, and undoing it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from tools.soak.acts import control, fabric, hosts
from tools.soak.stage import Stage
from tools.soak.troubles import Trouble

Act = Callable[[Stage, Trouble], AbstractContextManager[None]]
"""Makes a trouble on entry, or within; undoes it on exit, whatever happened."""

ACTS: Mapping[str, Act] = {**fabric.ACTS, **control.ACTS, **hosts.ACTS}


@contextmanager
def made(stage: Stage, trouble: Trouble) -> Iterator[None]:
    """Have a trouble while the context lasts."""
    with ACTS[trouble.kind](stage, trouble):
        yield
