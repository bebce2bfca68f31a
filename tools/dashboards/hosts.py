"""Hosts: who is there, their clocks, what agents and dataplanes count."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards import layout
from tools.dashboards.layout import Query, lines, rate, selected

MOST_REASONS = 10


def board() -> Dashboard:
    """Build it."""
    made = layout.board(
        "hosts",
        "cwdp / Hosts",
        "Who is there, their clocks, and what agents and dataplanes count.",
        view="clocks",
    )
    return _counters(_clocks(_members(made)))


def _members(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Who is there"))
        .with_panel(
            lines(
                "Hosts",
                "Those that a finding is about, or one of their links, are affected.",
                Query(f"max by (state) ({selected('cwdp_hosts')})", "{{state}}"),
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "NICs that are not probed",
                "And why.",
                Query(f"max by (reason) ({selected('cwdp_manager_nics', reason='!=ok')})", "{{reason}}"),
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Hellos and reports that were refused",
                "Per second.",
                Query(
                    f"max by (reason) ({rate('cwdp_manager_hellos_total', reason='!=ok')})",
                    "hello {{reason}}",
                ),
                Query(
                    f"max by (reason) ({rate('cwdp_manager_reports_total', reason='!=ok')})",
                    "report {{reason}}",
                ),
                Query(
                    f"max by (kind) ({rate('cwdp_manager_messages_refused_total')})", "second agent: {{kind}}"
                ),
            )
        )
        .with_panel(
            lines(
                "Paths",
                "Reported by probes; of which the links are known.",
                Query(f"max({selected('cwdp_owd_paths')})", "probed"),
                Query(f"max({selected('cwdp_fabric_paths')})", "traced"),
            )
        )
    )


def _clocks(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Clocks"))
        .with_panel(
            lines(
                "Hosts by the state of their clock",
                "",
                Query(f"max by (state) ({selected('cwdp_clock_hosts')})", "{{state}}"),
                stacked=True,
                span=8,
            )
        )
        .with_panel(
            lines(
                "Error bound",
                "Over hosts: the middle one, the worst of a hundred, the worst.",
                Query(f"max by (quantile) ({selected('cwdp_clock_bound_seconds')})", "{{quantile}}"),
                unit="s",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Unannounced changes",
                "Per hour.",
                Query(f"3600 * max({rate('cwdp_clock_changes_total')})", "changes"),
                span=8,
            )
        )
    )


def _counters(made: Dashboard) -> Dashboard:
    trouble = "!~.*_(sent|answered|reflected|accepted|added|rewritten)|trace_.*"

    def top(metric: str, reasons: str) -> str:
        return f"topk({MOST_REASONS}, max by (reason) ({rate(metric, reason=reasons)})) > 0"

    return (
        made.with_row(Row("What is counted on hosts"))
        .with_panel(
            lines(
                "Dataplanes",
                "Events per second, all hosts together, but for those of packets that are well.",
                Query(top("cwdp_dataplane_events_total", trouble), "{{reason}}"),
                span=8,
            )
        )
        .with_panel(
            lines(
                "Agents",
                "Per second, all hosts together, but for what was sent and answered.",
                Query(top("cwdp_agent_events_total", trouble), "{{reason}}"),
                span=8,
            )
        )
        .with_panel(
            lines(
                "Agents' bus connections",
                "Per second, but for what came through.",
                Query(top("cwdp_agent_bus_messages_total", "!~published|received"), "{{reason}}"),
                span=8,
            )
        )
    )
