"""The import rule, the sizes of modules and accesses to shared words, as the documents state them."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("cwdp", "manager", "tools")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
RULES = {
    "tools": PACKAGES,
    "manager": ("manager", "cwdp.shared", "cwdp.errors", "cwdp.__version__"),
    "cwdp.cli": ("cwdp", "manager"),
    "cwdp.shared": ("cwdp.shared", "cwdp.errors"),
    "cwdp.rdma": ("cwdp.rdma", "cwdp.shared", "cwdp.errors"),
    "cwdp.audit": (
        "cwdp.audit",
        "cwdp.dataplane",
        "cwdp.rdma",
        "cwdp.shared",
        "cwdp.errors",
        "cwdp.__version__",
    ),
    "cwdp.congestion": ("cwdp.congestion", "cwdp.slices", "cwdp.dataplane", "cwdp.shared", "cwdp.errors"),
    "cwdp.ib": ("cwdp.ib", "cwdp.shared", "cwdp.errors"),
    "cwdp.nccl": ("cwdp.nccl", "cwdp.dataplane", "cwdp.shared", "cwdp.errors"),
    "cwdp.slices": ("cwdp.slices", "cwdp.dataplane", "cwdp.shared", "cwdp.errors"),
}
"""What the modules of a package may import of the project."""

MOST_FILES = 15
"""Sources in a folder, `__init__.py` not counted."""

SOURCES = (".c", ".h", ".py", ".sh")
BPF = sorted((ROOT / "bpf").rglob("*.[ch]"))


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> Iterator[str]:
    """Every project module that a file imports, wherever in the file it does so."""
    own = _name(path).split(".")
    package = own if path.stem == "__init__" else own[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in PACKAGES)


def _within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _allowed(importer: str, imported: str) -> bool:
    for package, allowed in RULES.items():
        if _within(importer, package):
            return _within(imported, *allowed) or (package == "manager" and imported == "cwdp")
    return _within(imported, "cwdp") and not _within(imported, "cwdp.cli")


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_the_arrow_of_imports_runs_one_way(path: Path) -> None:
    wrong = [name for name in _imports(path) if not _allowed(_name(path), name)]
    if _name(path) == "cwdp.__main__":
        wrong = [name for name in wrong if name != "cwdp.cli.main"]
    assert wrong == []


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("manager.clock.service", "cwdp.shared.bus.messages", True),
        ("manager.clock.service", "cwdp.agent.service", False),
        ("manager.clock.service", "tools.lab", False),
        ("cwdp.agent.service", "manager.service", False),
        ("cwdp.agent.service", "cwdp.dataplane.pinned.maps", True),
        ("cwdp.shared.bus.connection", "cwdp.agent.config", False),
        ("cwdp.audit.live", "cwdp.rdma.sysfs", True),
        ("cwdp.audit.live", "cwdp.agent.config", False),
        ("cwdp.audit.live", "cwdp.doctor.facts", False),
        ("cwdp.rdma.udprobe", "cwdp.errors", True),
        ("cwdp.rdma.udprobe", "cwdp.dataplane.pinned.maps", False),
        ("cwdp.rdma.udprobe", "cwdp.agent.service", False),
        ("cwdp.slices.slicing", "cwdp.dataplane.pinned.maps", True),
        ("cwdp.slices.slicing", "cwdp.agent.service", False),
        ("cwdp.cli.manager", "manager.service", True),
        ("cwdp.cli.manager", "tools.lab", False),
        ("tools.lab.fleet.processes", "manager.config", True),
    ],
)
def test_the_rule_itself(importer: str, imported: str, allowed: bool) -> None:
    assert _allowed(importer, imported) is allowed


def _room(name: str, house: str) -> str:
    """The folder or module of a package that a module is in; where modules are run from lies on top of all."""
    inside = name.removeprefix(house).lstrip(".")
    return "__main__" if inside.endswith("__main__") else inside.split(".")[0]


def _arrows(house: str) -> Iterator[tuple[str, str]]:
    """Which rooms of a package import from which."""
    for path in MODULES:
        importer = _name(path)
        if not _within(importer, house):
            continue
        for imported in _imports(path):
            if _within(imported, house) and imported != house:
                yield _room(importer, house), _room(imported, house)


@pytest.mark.parametrize(
    "house",
    [
        "cwdp",
        "cwdp.agent",
        "cwdp.audit",
        "cwdp.cli",
        "cwdp.dataplane",
        "cwdp.shared",
        "cwdp.shared.clocksync",
        "manager",
        "tools",
        "tools.bench",
        "tools.lab",
        "tools.rdma",
        "tools.roce",
        "tools.sim",
    ],
)
def test_no_arrow_between_rooms_runs_back_up(house: str) -> None:
    _run_one_way(_arrows(house))


@pytest.mark.parametrize("house", ["bpf", "tools/roce/program"])
def test_no_include_between_rooms_runs_back_up(house: str) -> None:
    _run_one_way(_includes(ROOT / house))


def _run_one_way(arrows: Iterable[tuple[str, str]]) -> None:
    """Fail where the arrows between rooms make a circle."""
    rooms: dict[str, set[str]] = {}
    for importer, imported in arrows:
        if importer not in (imported, ""):
            rooms.setdefault(importer, set()).add(imported)
    assert len(rooms) > 2
    TopologicalSorter(rooms).prepare()


def _includes(house: Path) -> Iterator[tuple[str, str]]:
    """Which folders of C, or files that are in none, include which."""
    for path in house.rglob("*.[ch]"):
        for included in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE):
            yield path.relative_to(house).parts[0], Path(included).parts[0]


@pytest.mark.parametrize("house", ["bpf", "cwdp", "manager", "tests", "tools"])
def test_no_folder_holds_too_many_files(house: str) -> None:
    sources = [path for path in (ROOT / house).rglob("*") if path.suffix in SOURCES]
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in sources if path.stem != "__init__")
    assert len(folders) > 2
    assert {folder: count for folder, count in folders.items() if count > MOST_FILES} == {}


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 50
    assert len(BPF) > 5


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=_name)
def test_no_python_module_is_over_500_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500


@pytest.mark.parametrize("path", BPF, ids=lambda path: path.name)
def test_no_bpf_file_is_over_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", BPF, ids=lambda path: path.name)
def test_shared_words_are_accessed_by_read_once_and_write_once(path: Path) -> None:
    casts = [
        line
        for line in path.read_text().splitlines()
        if re.search(r"\*\s*\((const )?volatile\b", line)
        and not line.startswith(("#define READ_ONCE(", "#define WRITE_ONCE("))
    ]
    assert not casts


def _loaded_by(code: str) -> set[str]:
    """The top names of the modules that are loaded after some code, in a process of its own."""
    program = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_the_agent_loads_no_more_than_it_needs() -> None:
    loaded = _loaded_by("import cwdp.agent.service")
    assert "numpy" in loaded
    too_much = {"scipy", "rich", "click", "manager", "tools", "prometheus_client"}  # nats-py loads aiohttp
    assert loaded & too_much == set()


def test_what_reads_rdma_devices_loads_pyverbs_only_when_it_is_asked_for() -> None:
    assert "pyverbs" not in _loaded_by("import cwdp.cli.local.rdma, cwdp.rdma.sport, cwdp.rdma.udlink")


def test_help_does_not_wait_for_numpy() -> None:
    code = "from cwdp.cli import main\nmain(['--help'], standalone_mode=False)"
    too_much = {"numpy", "scipy", "rich", "aiohttp", "nats", "pyroute2", "manager"}
    assert _loaded_by(code) & too_much == set()
