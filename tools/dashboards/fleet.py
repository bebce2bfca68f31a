"""The fleet: whether all is well, what is wrong, and how the managers are."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards import layout
from tools.dashboards.layout import Query, lines, number, rate, rows, selected

BUS_TROUBLE = "=~dropped_.*|received_bad|received_slow|handler_failed"


def board() -> Dashboard:
    """Build it."""
    made = layout.board(
        "fleet", "cwdp / Fleet", "Whether all is well, what is wrong, how the managers are.", view="fleet"
    )
    return _managers(_delays(_findings(_numbers(made))))


def _numbers(made: Dashboard) -> Dashboard:
    return (
        made.with_panel(
            number(
                "Critical findings",
                "What takes traffic away: dead or silent.",
                f"max(sum by (instance) ({selected('cwdp_findings', severity='critical')}))",
                critical=1,
            )
        )
        .with_panel(
            number(
                "Warnings",
                "What slows traffic down.",
                f"max(sum by (instance) ({selected('cwdp_findings', severity='warning')}))",
                warning=1,
            )
        )
        .with_panel(
            number(
                "Hosts lost",
                "Not heard of for 5 s or longer.",
                f"max({selected('cwdp_hosts', state='lost')})",
                warning=1,
            )
        )
        .with_panel(
            number(
                "Jobs affected",
                "With queue pairs that cross what a finding is about.",
                f"max({selected('cwdp_jobs', state='affected')})",
                warning=1,
            )
        )
        .with_panel(
            number(
                "NICs probed",
                "Those that are measured.",
                f"max({selected('cwdp_manager_nics', reason='ok')})",
            )
        )
        .with_panel(
            number(
                "Widest clock bound",
                "One-way delays are as good as the clocks of both ends.",
                f"max({selected('cwdp_clock_bound_seconds', quantile='1.0')})",
                unit="s",
                warning=1e-6,
            )
        )
        .with_panel(
            number(
                "Flaps in an hour",
                "Times that something went or came back.",
                f"max(increase({selected('cwdp_flaps_total')}[1h]))",
                warning=8,
            )
        )
        .with_panel(
            number(
                "Managers that lead",
                "One leads; the others wait.",
                f"sum({selected('cwdp_manager_leads')})",
                least=1,
                critical=2,
            )
        )
    )


def _findings(made: Dashboard) -> Dashboard:
    names = f"max by (severity, kind, subject) ({selected('cwdp_finding_start_seconds')}) * 1000"
    return (
        made.with_row(Row("What is wrong"))
        .with_panel(
            lines(
                "Findings that hold",
                "By kind.",
                Query(f"max by (kind) ({selected('cwdp_findings')})", "{{kind}}"),
                stacked=True,
            )
        )
        .with_panel(
            rows(
                "What they are about",
                "Of more than 500 the gravest. The page and `cwdp link` have the evidence.",
                names,
                unit="dateTimeFromNow",
                value="since",
            )
        )
        .with_panel(
            lines(
                "Flaps and failovers",
                "Things that went or came back, and paths that dataplanes gave up, per minute.",
                Query(f"60 * max({rate('cwdp_flaps_total')})", "flaps"),
                Query(
                    f"60 * max({rate('cwdp_dataplane_events_total', reason='path_went_down')})",
                    "paths given up",
                ),
            )
        )
        .with_panel(
            lines(
                "Links by state",
                "But for those that are well.",
                Query(
                    f"max by (state) (sum by (state, instance) ({selected('cwdp_links', state='!=ok')}))",
                    "{{state}}",
                ),
                stacked=True,
            )
        )
    )


def _delays(made: Dashboard) -> Dashboard:
    lost = rate("cwdp_owd_probes_total", outcome="lost")
    return (
        made.with_row(Row("Delays"))
        .with_panel(
            lines(
                "One-way delay",
                "99th percentile of a path over 10 s: the middle path, the slowest of a hundred, the slowest.",
                Query(f"max by (quantile) ({selected('cwdp_owd_p99_seconds')})", "{{quantile}} of the paths"),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Probes lost",
                "Share of all probes.",
                Query(
                    f"max(sum by (instance) ({lost}) / sum by (instance) ({rate('cwdp_owd_probes_total')}))",
                    "lost",
                ),
                unit="percentunit",
            )
        )
    )


def _managers(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Managers"))
        .with_panel(
            lines(
                "Longest standstill of the loop, and wait of what hosts tell",
                "Reports and clocks wait meanwhile.",
                Query(selected("cwdp_manager_loop_lag_seconds"), "{{instance}} stands"),
                Query(selected("cwdp_manager_backlog_seconds"), "{{instance}} is behind"),
                unit="s",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Time to collect metrics",
                "Most of it in a thread.",
                Query(selected("cwdp_collector_duration_seconds"), "{{instance}}"),
                unit="s",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Bus",
                "Messages that were dropped, and handlers that failed, per second.",
                Query(
                    f"sum by (instance, reason) ({rate('cwdp_bus_messages_total', reason=BUS_TROUBLE)})",
                    "{{instance}} {{reason}}",
                ),
                span=8,
            )
        )
        .with_panel(
            lines(
                "Documents that wait",
                "For how long what a host is to do has not been on the bus.",
                Query(selected("cwdp_bus_documents_unwritten_seconds"), "{{instance}}"),
                unit="s",
                span=8,
            )
        )
        .with_panel(
            lines(
                "History that waits",
                "Records for the disk, messages for the bus and of the stream.",
                Query(selected("cwdp_history_waiting"), "{{instance}} {{store}}"),
                span=8,
            )
        )
        .with_panel(
            lines(
                "History on disk",
                "Size of the database, and what the rings may grow to.",
                Query(selected("cwdp_history_bytes"), "{{instance}} {{store}}"),
                unit="bytes",
                span=8,
            )
        )
    )
