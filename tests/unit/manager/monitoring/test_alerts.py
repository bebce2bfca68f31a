"""The alert rules: by Debian's promtool and amtool, and against the metrics and documents that they name."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bus_fakes import authority
from metric_names import AGENTS_OWN, known_metrics, metrics_in, wrong_selectors

from manager.access.grants import new_token

ROOT = Path(__file__).parents[4]
TOOLS = ROOT / "build/monitoring-tools"
MONITORING = ROOT / "manager/monitoring"
CASES = sorted(Path(__file__).parent.glob("alerts/*.yml"))

pytestmark = pytest.mark.needs(TOOLS / "promtool")


def run(program: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [TOOLS / program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def cases() -> Iterator[tuple[str, bool]]:
    """Which alert each test is about, and whether it fires."""
    for path in CASES:
        for test in yaml.safe_load(path.read_text())["tests"]:
            checks = test["alert_rule_test"]
            (alert,) = {check["alertname"] for check in checks}
            fires = [bool(check["exp_alerts"]) for check in checks]
            assert all(fires) or not any(fires)
            assert test["name"] == f"{alert} {'fires' if all(fires) else 'stays quiet'}"
            yield alert, all(fires)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_rules_fire_when_they_should_and_only_then(path: Path) -> None:
    assert "SUCCESS" in run("promtool", "test", "rules", path)


def test_each_rule_has_a_case_that_fires_and_one_that_stays_quiet() -> None:
    expected = [(rule["alert"], fires) for rule in rules() for fires in (True, False)]
    assert sorted(cases()) == sorted(expected)


def test_the_examples_of_configurations_are_valid(tmp_path: Path) -> None:
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(MONITORING / name, tmp_path)
    (tmp_path / "cwdp.token").write_text(new_token())
    (tmp_path / "cwdp.crt").write_text(authority().root)
    assert "SUCCESS" in run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert "SUCCESS" in run("amtool", "check-config", MONITORING / "alertmanager.yml")


def test_alertmanagers_example_names_alerts_that_exist() -> None:
    known = {rule["alert"] for rule in rules()}
    text = (MONITORING / "alertmanager.yml").read_text()
    patterns = re.findall(r'alertname=~?"([^"]+)"', text)
    assert patterns
    for pattern in patterns:
        for each in pattern.split("|"):
            assert any(re.fullmatch(each, name) for name in known), each


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_rule_tells_how_grave_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    told = rule["annotations"]
    assert told.keys() == {"summary", "description", "runbook_url"}
    assert "$labels.cluster" in told["description"] or rule["alert"] == "CwdpManagerAbsent"
    page, _, anchor = told["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {heading.lower() for heading in headings}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_rule_asks_for_metrics_and_labels_that_the_manager_has(rule: dict[str, Any]) -> None:
    assert wrong_selectors(rule["expr"]) == []


def test_the_cases_are_made_of_metrics_and_labels_that_the_manager_has() -> None:
    for path in CASES:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for series in test["input_series"]:
                assert wrong_selectors(series["series"]) == []


def test_reasons_that_rules_name_are_explained() -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    for rule in rules():
        for metric, reason in re.findall(r'(\w+)\{reason="(\w+)"', rule["expr"]):
            assert metric not in AGENTS_OWN or f"`{reason}`" in text, reason


@pytest.mark.parametrize(
    "query",
    [
        "cwdp_no_such_metric > 0",
        'cwdp_manager_hosts{stat="lost"}',
        'cwdp_manager_hosts{state="gone"}',
        'sum(cwdp_links{state=~"full|emty"})',
    ],
)
def test_a_wrong_name_would_be_found(query: str) -> None:
    assert wrong_selectors(query)


def test_metrics_are_found_in_a_query() -> None:
    query = 'max by (cluster) (rate(cwdp_links{state="full"}[5m])) / cwdp_hosts > up'
    assert metrics_in(query) == {"cwdp_links", "cwdp_hosts"}
    assert metrics_in(query) <= known_metrics().keys()
