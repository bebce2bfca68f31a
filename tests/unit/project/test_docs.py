"""The documents against the code: commands, metrics, counters, settings, keys and links that they name exist."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from bus_fakes import manager_bus

from cwdp.agent.collectives.keeper import NcclConfig
from cwdp.agent.config import AgentConfig, CongestionConfig, InterfaceConfig, VerbsConfig
from cwdp.agent.goback.process import COUNTERS as GO_BACK_COUNTERS
from cwdp.agent.probing.prober import COUNTERS as PROBER_COUNTERS
from cwdp.agent.ud import process as ud_process
from cwdp.agent.ud.nic import COUNTERS as UD_NIC
from cwdp.agent.ud.pairs import COUNTERS as UD_PAIRS
from cwdp.agent.uprobes.orders import COUNTERS as UPROBES
from cwdp.agent.verbs.clients import COUNTERS as VERBS_CLIENTS
from cwdp.agent.verbs.host import COUNTERS as VERBS_HOST
from cwdp.agent.verbs.keeper import STATES
from cwdp.agent.verbs.moves import COUNTERS as VERBS_MOVES
from cwdp.agent.verbs.queuepairs import COUNTERS as VERBS_QPS
from cwdp.cli import main
from cwdp.dataplane.abi import Reason
from cwdp.rdma.udprobe import COUNTERS as UD_PROBER
from cwdp.shared.bus.connection import COUNTERS as BUS_COUNTERS
from manager.api.metrics import AREAS, FleetCollector, Sources
from manager.bus.lease import Claim, Lease
from manager.clock.timeline import Identity
from manager.config import ManagerConfig, ProbeSettings
from manager.state import FleetState

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
FOLDERS = ("bpf", "cwdp", "docs", "manager", "tools", "vagrant")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
FILES = {
    str(path.relative_to(ROOT))
    for folder in (*FOLDERS, "tests")
    for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
    if "__pycache__" not in path.parts
}
ENDS_OF_COMMAND = {"|", "||", "&&", ";", "&", ">", "2>", ">>"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SOURCE = re.compile(r"`([\w./]+\.(?:py|c|h|sh)|(?:bpf|cwdp|manager|tests|tools)/[\w./]*)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
METRIC = re.compile(r"`(cwdp_[a-z0-9_]+)`")


def fenced(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def quoted_commands(text: str) -> Iterator[str]:
    """Lines of code, and code within a line, that call cwdp."""
    code = [line for _, block in FENCE.findall(text) for line in block.splitlines()]
    for line in (*code, *INLINE.findall(FENCE.sub("", text))):
        call = re.match(r"(?:\$ )?(?:sudo )?(?:\S*/)?(cwdp(?: .*)?)$", line.strip())
        if call is not None:
            yield call[1]
        yield from re.findall(r"-c '(?:sudo )?(cwdp [^']*)'", line)


def resolve(command: str) -> None:
    """Find the command and have it parse the options, without running it.

    Raises:
        click.ClickException: there is no such command, option or argument.
    """
    words = shlex.split(command, comments=True)[1:]
    end = next((i for i, word in enumerate(words) if word in ENDS_OF_COMMAND), len(words))
    words = words[:end]
    found: click.Command = main
    ctx = click.Context(main, info_name="cwdp")
    while isinstance(found, click.Group) and words and not words[0].startswith("-"):
        inner = found.get_command(ctx, words[0])
        if inner is None:
            raise click.UsageError(f"no command {words[0]!r} in {command!r}")
        found, words = inner, words[1:]
        ctx = click.Context(found, ctx, info_name=found.name, **found.context_settings)
    _, left, _ = found.make_parser(ctx).parse_args(args=list(words))
    if left and not isinstance(found, click.Group):
        raise click.UsageError(f"{left} is too much in {command!r}")


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_quoted_command_exists(page: Path) -> None:
    for command in quoted_commands(page.read_text()):
        try:
            resolve(command)
        except click.ClickException as error:
            pytest.fail(f"{page.name}: `{command}`: {error.format_message()}")


def test_a_wrong_command_would_be_found() -> None:
    wrong = "`cwdp clok`, `sudo cwdp owd --sort name --nope`, `cwdp clock surplus`"
    commands = list(quoted_commands(wrong))
    assert len(commands) == 3
    for command in commands:
        with pytest.raises(click.ClickException):
            resolve(command)


def test_every_command_is_documented() -> None:
    text = (DOCS / "commands.md").read_text()

    def walk(command: click.Command, path: str) -> Iterator[str]:
        if not isinstance(command, click.Group):
            yield path
            return
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from walk(inner, f"{path} {name}")

    assert [path for path in walk(main, "cwdp") if path not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_quoted_source_exists(page: Path) -> None:
    """A name alone is that of a file in whichever folder."""
    for name in SOURCE.findall(page.read_text()):
        assert any(f"/{path}".endswith(f"/{name.rstrip('/')}") for path in FILES), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = page if not path else (page.parent / path).resolve()
        assert found.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: {target}"


def metric_samples() -> dict[str, set[str]]:
    """Each metric's name as it is exposed, with all values of its labels, of a manager that knows no host."""
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    bus = manager_bus("nats://127.0.0.1:1")
    lease = Lease([bus], Claim(manager="1", name="m"), lambda _leads: None)
    collector = FleetCollector(Sources(state=state, bus=bus, server=None, lease=lease))
    found: dict[str, set[str]] = {}
    for metric in collector.scrape({}).collect():
        name = metric.name + ("_total" if metric.type == "counter" else "")
        labels = {value for sample in metric.samples for value in sample.labels.values()}
        found.setdefault(name, set()).update(labels)
    return found


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    text = (DOCS / "metrics.md").read_text()
    documented = {name for line in text.splitlines() if line.startswith("|") for name in METRIC.findall(line)}
    assert documented == metric_samples().keys()


def test_every_label_value_is_documented() -> None:
    text = (DOCS / "metrics.md").read_text()
    elsewhere = {f"{name}_total" for name, _ in AREAS.values()}
    for name, values in metric_samples().items():
        if name in elsewhere or name == "cwdp_build_info":
            continue
        missing = [value for value in values if f"`{value}`" not in text]
        assert missing == [], name


def test_every_counter_is_explained() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    ud = {f"ud_{name}" for name in (*ud_process.COUNTERS, *UD_PAIRS, *UD_PROBER, *UD_NIC)}
    names = {
        *(reason.name.lower() for reason in Reason),
        *PROBER_COUNTERS,
        *BUS_COUNTERS,
        *GO_BACK_COUNTERS,
        *ud,
        *(f"uprobes_{name}" for name in UPROBES),
        *(f"verbs_{name}" for name in (*VERBS_HOST, *VERBS_CLIENTS, *VERBS_QPS, *VERBS_MOVES)),
    }
    names -= STATES
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def documented_settings(path: str) -> str:
    """The example of a configuration file, with what is commented out taken in."""
    blocks = [block for block in fenced(DOCS / "install.md", "toml") if block.startswith(f"# {path}\n")]
    assert len(blocks) == 1
    return blocks[0]


def test_the_managers_settings_are_documented_with_their_defaults() -> None:
    text = documented_settings("/etc/cwdp/manager.toml")
    assert msgspec.convert(tomllib.loads(text), ManagerConfig) == ManagerConfig()
    whole = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE))
    assert whole.keys() == set(ManagerConfig.__struct_fields__)
    assert whole["probes"].keys() == set(ProbeSettings.__struct_fields__)


def test_the_agents_settings_are_documented_with_their_defaults() -> None:
    """Services of TCP are an example: they have no defaults."""
    text = documented_settings("/etc/cwdp/agent.toml")
    given = msgspec.convert(tomllib.loads(text), AgentConfig)
    by_default = {ifname: InterfaceConfig() for ifname in given.nics}
    assert given == AgentConfig(
        nics=given.nics,
        congestion=CongestionConfig(),
        verbs=VerbsConfig(),
        nccl=NcclConfig(),
        tcp=given.tcp,
        interface=by_default,
    )
    whole = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE))
    assert {*whole, "test_clock"} == set(AgentConfig.__struct_fields__)
    (interface,) = whole["interface"].values()
    assert interface.keys() == set(InterfaceConfig.__struct_fields__)


def json_keys(value: object) -> Iterator[str]:
    """Every key of a document; names of counters are values of a kind."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key != "counters":
                yield from json_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from json_keys(inner)


def test_every_json_key_is_explained() -> None:
    text = (DOCS / "commands.md").read_text()
    for block in fenced(DOCS / "commands.md", "json"):
        missing = [key for key in json_keys(json.loads(block)) if f"`{key}`" not in text]
        assert missing == []
