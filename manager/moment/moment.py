"""The fabric at an instant, now or of the past: what every page is made from. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from manager.fabric.routes import Routes
from manager.moment.pairs import Pairs
from manager.moment.parts import Parts
from manager.moment.talkers import Talkers
from manager.view.json_values import Json
from manager.view.link_table import LinkTable


@dataclass(frozen=True, kw_only=True, eq=False)
class Moment:
    """All that is known of one instant.

    Attributes:
        at_s: the wall clock then.
        is_live: whether it is now.
        links: every link.
        parts: switches and NICs.
        talkers: the queue pairs that send.
        leaf_pairs: what probes measured between leaves; None where that is not known.
        nic_pairs: the same between NICs; never known of the past.
        routes: the paths that are known now, whatever the moment.
        findings: what was wrong, as `link_views.finding_as_json` has it.
    """

    at_s: float
    is_live: bool
    links: LinkTable
    parts: Parts
    talkers: Talkers
    leaf_pairs: Pairs | None
    nic_pairs: Pairs | None
    routes: Routes = field(default_factory=Routes)
    findings: Sequence[Json] = field(default_factory=list)
