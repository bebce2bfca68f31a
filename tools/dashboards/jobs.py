"""Jobs and their queue pairs: what they carry, what holds them up, and what the planner does about it."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards import layout
from tools.dashboards.layout import Query, lines, rate, selected


def board() -> Dashboard:
    """Build it."""
    made = layout.board(
        "jobs",
        "cwdp / Jobs",
        "What queue pairs carry, what holds them up, and what the planner does. Single jobs: the page.",
        view="jobs",
    )
    return _planner(_trouble(_iterations(_traffic(made))))


def _traffic(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Traffic"))
        .with_panel(
            lines(
                "Jobs",
                "Those with queue pairs that cross what a finding is about are affected.",
                Query(f"max by (state) ({selected('cwdp_jobs')})", "{{state}}"),
                stacked=True,
                span=8,
            )
        )
        .with_panel(
            lines(
                "Throughput",
                "RoCEv2, all queue pairs together.",
                Query(f"8 * max by (direction) ({rate('cwdp_qp_bytes_total')})", "{{direction}}"),
                unit="bps",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Queue pairs",
                "Seen within 10 minutes.",
                Query(f"max by (direction) ({selected('cwdp_qp_queue_pairs')})", "{{direction}}"),
                span=8,
            )
        )
    )


def _iterations(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Jobs that send in bursts"))
        .with_panel(
            lines(
                "Iterations",
                "How long one takes, the mean of 30 s or since it changed.",
                Query(f"max by (job_name) ({selected('cwdp_job_iteration_seconds')})", "{{job_name}}"),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Stragglers",
                "By how much NICs for which others wait are late in an iteration.",
                Query(
                    f"max by (job_name, nic) ({selected('cwdp_job_straggler_late_seconds')})",
                    "{{job_name}}: {{nic}}",
                ),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "What they send",
                "The mean of 30 s.",
                Query(f"max by (job_name) ({selected('cwdp_job_load_bps')})", "{{job_name}}"),
                unit="bps",
            )
        )
        .with_panel(
            lines(
                "Jobs",
                "Those whose queue pairs send in bursts.",
                Query(f"max({selected('cwdp_jobs_sending_in_bursts')})", "in bursts"),
            )
        )
    )


def _share(metric: str, direction: str) -> str:
    packets = rate("cwdp_qp_packets_total", direction=direction)
    return f"max({rate(metric, direction=direction)} / {packets})"


def _trouble(made: Dashboard) -> Dashboard:
    switches = {"src_tier": "!=nic", "dst_tier": "!=nic"}
    full = f"sum by (instance) ({selected('cwdp_links', state='full', **switches)})"
    between = f"sum by (instance) ({selected('cwdp_links', **switches)})"
    return (
        made.with_row(Row("What holds them up"))
        .with_panel(
            lines(
                "Congestion",
                "Share of packets that came marked CE, and that were congestion notifications.",
                Query(_share("cwdp_qp_ce_marked_packets_total", "ingress"), "marked CE"),
                Query(_share("cwdp_qp_cnps_total", "ingress"), "CNP"),
                unit="percentunit",
            )
        )
        .with_panel(
            lines(
                "Sent again, missed, late",
                "Share of packets.",
                Query(_share("cwdp_qp_retransmitted_packets_total", "egress"), "sent again"),
                Query(_share("cwdp_qp_missed_packets_total", "ingress"), "passed over"),
                Query(_share("cwdp_qp_reordered_packets_total", "ingress"), "came later"),
                unit="percentunit",
            )
        )
        .with_panel(
            lines(
                "NAKs",
                "Per second, by kind.",
                Query(f"max by (kind) ({rate('cwdp_qp_naks_total')})", "{{kind}}"),
            )
        )
        .with_panel(
            lines(
                "Full links",
                "Share of links between switches whose queues do not empty.",
                Query(f"max({full} / {between})", "full"),
                unit="percentunit",
            )
        )
    )


def _planner(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("What the planner does"))
        .with_panel(
            lines(
                "Queue pairs",
                "Steered; with a backup.",
                Query(f"max({selected('cwdp_planner_steered_queue_pairs')})", "steered"),
                Query(f"max({selected('cwdp_planner_backed_up_queue_pairs')})", "backed up"),
                span=8,
            )
        )
        .with_panel(
            lines(
                "Done",
                "Per second.",
                Query(f"max by (what) ({rate('cwdp_planner_queue_pairs_total')})", "{{what}}"),
                span=8,
            )
        )
        .with_panel(
            lines(
                "Fullest link",
                "What is wanted of the fullest link between switches, over what it carries.",
                Query(f"max({selected('cwdp_planner_fullest_link_ratio')})", "wanted"),
                unit="percentunit",
                span=8,
            )
        )
    )
