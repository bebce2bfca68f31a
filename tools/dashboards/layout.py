"""What all dashboards have in common: their variables and links, and panels in few words.

Colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), which the colour-blind can tell apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from manager.config import DEFAULT_PAGE

TAG = "cwdp"
WIDTH = 24
OURS = 'cluster="$cluster"'
"""Selects the cluster that is looked at."""

BLUE, ORANGE, VERMILION = "#0072B2", "#E69F00", "#D55E00"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

Panel = Builder[models.Panel]


@dataclass(frozen=True)
class Query:
    """PromQL, and how each of its series is called."""

    expr: str
    legend: str


def board(
    name: str,
    title: str,
    description: str,
    *,
    view: str,
    variables: Sequence[dashboard.QueryVariable] = (),
) -> dashboard.Dashboard:
    """An empty dashboard with what all have; `view` is the one of the manager's page that it leads to."""
    board = (
        dashboard.Dashboard(title)
        .uid(f"cwdp-{name}")
        .description(description)
        .tags([TAG])
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("cwdp")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .link(
            dashboard.DashboardLink("Live page")
            .type(models.DashboardLinkType.LINK)
            .url(on_page(view))
            .icon("external link")
            .target_blank(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("data source").type("prometheus"))
        .with_variable(choice("cluster", "label_values(cwdp_build_info, cluster)"))
    )
    for variable in variables:
        board = board.with_variable(variable)
    return board.with_variable(
        dashboard.TextBoxVariable("page").label("page").default_value(f"http://{DEFAULT_PAGE}")
    )


def choice(name: str, query: str, *, several: bool = False) -> dashboard.QueryVariable:
    """A variable whose values are those of a label."""
    variable = (
        dashboard.QueryVariable(name)
        .label(name)
        .datasource(SOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
    )
    return variable.multi(True).include_all(True).all_value(".*") if several else variable


def lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    stacked: bool = False,
    span: int = 12,
    leads_to: str = "",
) -> Panel:
    """Values over time; a click on one leads to a view of the manager's page, if one is given."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .span(span)
        .height(8)
        .line_width(1)
        .fill_opacity(25 if stacked else 0)
        .show_points(common_models.VisibilityMode.NEVER)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .legend(
            common.VizLegendOptions()
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    if leads_to:
        link = dashboard.DashboardLink("Show on the live page").url(on_page(leads_to)).target_blank(True)
        panel = panel.data_links([link])
    for i, query in enumerate(queries):
        panel = panel.with_target(_target(query, i))
    return panel


def number(
    title: str,
    description: str,
    query: str,
    *,
    unit: str = "short",
    warning: float | None = None,
    critical: float | None = None,
    least: float | None = None,
    span: int = 3,
) -> Panel:
    """The latest value, coloured from where it is a warning, or critical, as it is below `least`."""
    steps = [models.Threshold(value=None, color=BLUE if least is None else VERMILION)]
    if least is not None:
        steps.append(models.Threshold(value=least, color=BLUE))
    if warning is not None:
        steps.append(models.Threshold(value=warning, color=ORANGE))
    if critical is not None:
        steps.append(models.Threshold(value=critical, color=VERMILION))
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(span)
        .height(4)
        .color_mode(common_models.BigValueColorMode.BACKGROUND)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .with_target(_target(Query(query, ""), 0))
    )


def rows(title: str, description: str, query: str, *, unit: str, value: str, span: int = 12) -> Panel:
    """The latest values as a table with a column for each label; the values' column is called `value`."""
    return (
        table.Panel()
        .title(title)
        .align(common_models.FieldTextAlignment.AUTO)
        .inspect(False)
        .description(description)
        .datasource(SOURCE)
        .span(span)
        .height(8)
        .override_by_name(value, [models.DynamicConfigValue("unit", unit)])
        .with_transformation(
            models.DataTransformerConfig(
                id_val="organize",
                options={"excludeByName": {"Time": True}, "renameByName": {"Value": value}},
            )
        )
        .with_target(
            prometheus.Dataquery()
            .datasource(SOURCE)
            .expr(query)
            .format(prometheus_models.PromQueryFormat.TABLE)
            .instant()
            .ref_id("A")
        )
    )


def on_page(view: str) -> str:
    """The address of a view of the manager's page."""
    return f"${{page}}/#/{view}"


def selected(metric: str, **labels: str) -> str:
    """A metric in the chosen cluster; a label's value may begin with `!=`, `=~` or `!~`."""
    matchers = [OURS, *(_matcher(label, value) for label, value in labels.items())]
    return f"{metric}{{{', '.join(matchers)}}}"


def rate(metric: str, **labels: str) -> str:
    """How fast a counter rises in the chosen cluster, over what Grafana takes for a sensible span."""
    return f"rate({selected(metric, **labels)}[$__rate_interval])"


def _matcher(label: str, value: str) -> str:
    operator = value[:2] if value[:2] in ("!=", "=~", "!~") else ""
    return f'{label}{operator or "="}"{value.removeprefix(operator)}"'


def _target(query: Query, i: int) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .datasource(SOURCE)
        .expr(query.expr)
        .legend_format(query.legend or "__auto")
        .range()
        .ref_id(chr(ord("A") + i))
    )
