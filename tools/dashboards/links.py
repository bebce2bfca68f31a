"""Links: by tier, by rail, and the leaves that stand out."""

from functools import partial

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards import layout
from tools.dashboards.layout import Query, choice, lines, rows, selected

PAIR = "src_tier, dst_tier"
NAMED = "{{src_tier}} > {{dst_tier}}"
MOST_LEAVES = 10


def board() -> Dashboard:
    """Build it."""
    made = layout.board(
        "links",
        "cwdp / Links",
        "Queues, loads and losses of links, by the tiers of their ends (1 is leaves), by rail and by leaf.",
        view="map",
        variables=[choice("leaf", f"label_values({selected('cwdp_leaf_load_bps')}, leaf)", several=True)],
    )
    return _leaves(_rails(_tiers(made)))


def _worst(metric: str, by: str, **labels: str) -> str:
    return f"max by ({by}) ({selected(metric, **labels)})"


def _tiers(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Tiers"))
        .with_panel(
            lines(
                "Queue, longest",
                "99th percentile of the queueing delay of the worst link.",
                Query(_worst("cwdp_link_queue_p99_seconds", PAIR, quantile="1.0"), NAMED),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Queue, typical",
                "Median over links of the median queueing delay.",
                Query(_worst("cwdp_link_queue_p50_seconds", PAIR, quantile="0.5"), NAMED),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Load of the fullest link",
                "Over what it can carry.",
                Query(_worst("cwdp_link_load_ratio", PAIR, quantile="1.0"), NAMED),
                unit="percentunit",
            )
        )
        .with_panel(
            lines(
                "Load of the middle link",
                "Over what it can carry: far below the fullest, placement could be better.",
                Query(_worst("cwdp_link_load_ratio", PAIR, quantile="0.5"), NAMED),
                unit="percentunit",
            )
        )
        .with_panel(
            lines(
                "What links carry",
                "Added up.",
                Query(_worst("cwdp_link_load_bps", PAIR), NAMED),
                unit="bps",
            )
        )
        .with_panel(
            lines(
                "Largest loss",
                "Share of the probes over the worst link that were lost, on any of their links.",
                Query(_worst("cwdp_link_loss_max_ratio", PAIR), NAMED),
                unit="percentunit",
            )
        )
        .with_panel(
            lines(
                "Links by state",
                "But for those that are well.",
                Query(
                    _worst("cwdp_links", f"{PAIR}, state", state="!=ok") + " > 0", f"{NAMED} {{{{state}}}}"
                ),
                stacked=True,
            )
        )
        .with_panel(
            rows(
                "Links now",
                "By the tiers of their ends and state.",
                _worst("cwdp_links", f"{PAIR}, state") + " > 0",
                unit="short",
                value="links",
            )
        )
    )


def _rails(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Rails"))
        .with_panel(
            lines(
                "Links in trouble",
                "With a finding, at the leaves of each rail.",
                Query(_worst("cwdp_rail_links_in_trouble", "rail"), "{{rail}}"),
                span=8,
            )
        )
        .with_panel(
            lines(
                "Longest queue",
                "99th percentile.",
                Query(_worst("cwdp_rail_queue_p99_max_seconds", "rail"), "{{rail}}"),
                unit="s",
                span=8,
            )
        )
        .with_panel(
            lines(
                "What links carry",
                "Added up.",
                Query(_worst("cwdp_rail_load_bps", "rail"), "{{rail}}"),
                unit="bps",
                span=8,
            )
        )
    )


def _leaves(made: Dashboard) -> Dashboard:
    def top(metric: str, by: str = "leaf, links") -> str:
        return f"topk({MOST_LEAVES}, {_worst(metric, by, leaf='=~$leaf')})"

    named = "{{leaf}} {{links}}"
    leaf_lines = partial(lines, leads_to="leaf?name=${__field.labels.leaf:percentencode}")
    return (
        made.with_row(Row("Leaves"))
        .with_panel(
            leaf_lines(
                "Longest queues",
                "99th percentile, of a leaf's links of a kind.",
                Query(top("cwdp_leaf_queue_p99_max_seconds"), named),
                unit="s",
            )
        )
        .with_panel(
            leaf_lines(
                "Fullest links",
                "Load over what they can carry.",
                Query(top("cwdp_leaf_load_max_ratio"), named),
                unit="percentunit",
            )
        )
        .with_panel(
            leaf_lines(
                "Largest losses",
                "Share of probes.",
                Query(top("cwdp_leaf_loss_max_ratio"), named),
                unit="percentunit",
            )
        )
        .with_panel(
            leaf_lines(
                "Links in trouble",
                "With a finding.",
                Query(top("cwdp_leaf_links_in_trouble", "leaf") + " > 0", "{{leaf}}"),
            )
        )
        .with_panel(
            leaf_lines(
                "What links carry",
                "Added up by kind.",
                Query(top("cwdp_leaf_load_bps"), named),
                unit="bps",
                span=24,
            )
        )
    )
