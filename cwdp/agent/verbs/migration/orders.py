"""A leader's orders to migrate queue pairs over InfiniBand, as the agent takes them and says what came of them."""

import errno
from collections import Counter
from collections.abc import Callable, Iterable

from cwdp.agent.verbs.keeper import VerbsKeeper
from cwdp.shared.verbs import MigrationAnswer, MigrationOrder, MigrationReport

COUNTERS = ("verbs_migrations_fenced", "verbs_migrations_refused")

Say = Callable[[str, MigrationReport], object]


class MigrationOrders:
    """Passes steps to the process for the verbs shim, and answers on.

    Args:
        host: this one.
        keeper: of that process; None where programs are not served.
        observe_only: whether nothing is to be moved here.
        say: publishes a message of a kind.

    Attributes:
        counters: of COUNTERS.
        epoch: of the latest leader that is known.
    """

    def __init__(self, host: str, keeper: VerbsKeeper | None, say: Say, *, observe_only: bool) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.epoch = 0
        self._host, self._say = host, say
        self._keeper = None if observe_only else keeper
        if keeper is not None:
            keeper.on_migrated = self._tell

    def order(self, order: MigrationOrder) -> None:
        """Have it done, unless another leader has followed who orders it."""
        if order.epoch < self.epoch:
            self.counters["verbs_migrations_fenced"] += 1
        elif self._keeper is None or not self._keeper.migrate(order):
            self.counters["verbs_migrations_refused"] += 1
            error = errno.EPERM if self._keeper is None else errno.EAGAIN
            self._tell(MigrationAnswer(step.number, error) for step in order.steps)

    def _tell(self, answers: Iterable[MigrationAnswer]) -> None:
        self._say("migrated", MigrationReport(host=self._host, answers=list(answers)))
