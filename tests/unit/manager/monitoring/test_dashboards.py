"""The dashboards as they are kept: what the code writes, what Prometheus understands, what the manager has."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from metric_names import known_metrics, metrics_in, wrong_selectors

from tools.dashboards.boards import BOARDS, rendered

ROOT = Path(__file__).parents[4]
ROUTES = (ROOT / "manager/page/static/js/routes.js").read_text()
FOLDER = ROOT / "manager/monitoring/dashboards"
PROMTOOL = ROOT / "build/monitoring-tools/promtool"
VALUES = {"$__rate_interval": "1m", "$cluster": "training-1", "$leaf": ".*"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

every_board = pytest.mark.parametrize("name", sorted(BOARDS))


def board(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in board(name)["panels"] if panel["type"] != "row"]


def queries(name: str) -> Iterator[str]:
    for panel in panels(name):
        yield from (target["expr"] for target in panel["targets"])


def test_what_is_kept_is_what_the_code_writes() -> None:
    kept = {path.stem: path.read_text() for path in FOLDER.iterdir()}
    assert kept == rendered(), "run `make dashboards`"


@every_board
def test_the_library_reads_what_it_wrote(name: str) -> None:
    register_default_plugins()
    read = Dashboard.from_json(board(name))
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == board(name)


@pytest.mark.needs(PROMTOOL)
@every_board
def test_prometheus_understands_each_query(name: str, tmp_path: Path) -> None:
    rules = []
    for i, query in enumerate(queries(name)):
        filled = re.sub(r"\$\w+", lambda found: VALUES[found[0]], query)
        rules.append({"record": f"cwdp:{name}:{i}", "expr": filled})
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": name, "rules": rules}]}))
    done = subprocess.run(
        [PROMTOOL, "check", "rules", path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@every_board
def test_each_query_asks_for_what_the_manager_has_in_the_chosen_cluster(name: str) -> None:
    asked = list(queries(name))
    assert len(asked) > 10
    for query in asked:
        assert wrong_selectors(query) == []
        assert query.count('cluster="$cluster"') == len(re.findall(r"\bcwdp_\w+\{", query)) > 0
        assert "$__rate_interval" in query or not re.search(r"\brate\(", query)


@every_board
def test_each_dashboard_chooses_source_and_cluster_and_leads_to_the_others_and_to_the_page(name: str) -> None:
    whole = board(name)
    variables = {variable["name"]: variable for variable in whole["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for variable in variables.values():
        if variable["type"] == "query":
            assert variable["datasource"] == SOURCE
            metric, label = re.fullmatch(
                r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]
            ).groups()
            assert label == "cluster" or label in known_metrics()[metric]
    tags, page = whole["links"]
    assert tags["tags"] == whole["tags"] == ["cwdp"]
    assert tags["includeVars"]
    assert "page" in variables
    addresses = [
        page["url"],
        *(
            link["url"]
            for panel in panels(name)
            for link in panel["fieldConfig"]["defaults"].get("links", [])
        ),
    ]
    for address in addresses:
        view, _, names = re.fullmatch(r"\$\{page\}/#/(\w+)(\?(.*))?", address).groups()
        assert f"  {view}: {{ title:" in ROUTES
        assert not names or names.startswith("name=${__field.labels.")
    for panel in panels(name):
        assert panel["datasource"] == SOURCE
        assert all(target["datasource"] == SOURCE for target in panel["targets"])


@every_board
def test_no_panel_covers_another(name: str) -> None:
    cells = [
        (x, y)
        for panel in board(name)["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_dashboards_are_told_apart() -> None:
    for key in ("uid", "title"):
        assert len({board(name)[key] for name in BOARDS}) == len(BOARDS)


def test_dashboards_show_most_of_what_is_measured_of_links_and_findings() -> None:
    shown = {metric for name in BOARDS for query in queries(name) for metric in metrics_in(query)}
    wanted = {
        name
        for name in known_metrics()
        if re.match(r"cwdp_(link|leaf|findings$|finding_|jobs|hosts|flaps)", name)
    }
    assert wanted <= shown
