"""`python -m tools.packages.deb`: make the Debian packages.

`cwdp` holds the program, in a private environment with those libraries of Python that Debian has not, or not new enough;
`cwdp-agent` and `cwdp-manager` hold what makes services of it, and what the manager alone needs.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from email.utils import formatdate
from pathlib import Path

from cwdp.rdma.libraries import INSTALLED, VERBS
from tools.packages import wheel
from tools.packages.checkout import CHECKOUT, OUTPUT, PackageError, fresh_log, print_made, require, run

INSIDE = {
    "cwdp": (
        "aiohttp",  # by 3.8 tests of the page's listener fail: connections are left open
        "aiohappyeyeballs",  # for aiohttp, as are the next
        "aiosignal",
        "attrs",
        "frozenlist",
        "idna",
        "multidict",
        "propcache",
        "typing-extensions",
        "yarl",
        "click",  # 8.1 has no generic parameter types
        "msgspec",  # not in Debian 12
        "nats-py",  # not in Debian 12
        "nkeys",  # not in Debian 12
        "numpy",  # for scipy, which wants 1.26
        "pyroute2",  # 0.7 has no asyncio
    ),
    "cwdp-manager": ("scipy",),  # 1.10 has no `coords` of sparse arrays
}
"""What of requirements.txt goes into which package, and what Debian 12's lacks; the rest is Debian's."""

_FROM_SOURCE = ("nkeys",)
"""Released as source alone; of Python alone."""

_DEBIAN = CHECKOUT / "tools/packages/debian"
_UNITS = CHECKOUT / "tools/systemd"
_HOME = Path("usr/lib/cwdp")
_LIBRARIES = _HOME / "lib/python3.11/site-packages"
_PYTHON = "/usr/bin/python3.11"
_DEBIANS_LIBRARIES = "/usr/lib/python3/dist-packages"
_CHECKOUTS_PROGRAM, _PROGRAM = "/opt/cwdp/.venv/bin/cwdp", "/usr/bin/cwdp"
_NATS_SERVER = "nats-server"
_COMPILE = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
"""The dates of files are changed by dpkg, so that compiled ones are not to go by them."""

_ENTRY = f"""#!/{_HOME}/bin/python3
from cwdp.cli import main

main(prog_name="cwdp")
"""
_PYVENV = "home = /usr/bin\ninclude-system-site-packages = false\n"
_SETTINGS = {
    "agent": """# All settings, and what they mean: /usr/share/doc/cwdp/docs/install.md
nics = []    # the interfaces to probe from, such as ["eth1"]
# nats = "nats://10.0.0.1:4222"    # the manager's bus
""",
    "manager": """# All settings, and what they mean: /usr/share/doc/cwdp/docs/install.md
# bus_listen = "10.0.0.1:4222"    # where agents on other machines reach the bus
""",
}


def build(output: Path) -> list[Path]:
    """Make the packages in a folder, and return their paths.

    Raises:
        PackageError: something is not installed, or a step failed.
    """
    require("dpkg-buildpackage", "dh", _NATS_SERVER)
    log = fresh_log(output, "deb")
    with tempfile.TemporaryDirectory(prefix="cwdp-deb-") as folder:
        sources = Path(folder) / "cwdp"
        shutil.copytree(_DEBIAN, sources / "debian")
        root = sources / "root"
        _program(root, log)
        _documents(root / "cwdp")
        _services(root, sources / "debian")
        _write(sources / "debian/changelog", _changelog())
        run(["dpkg-buildpackage", "-us", "-uc", "-b"], sources, log)
        return sorted(Path(shutil.move(deb, output / deb.name)) for deb in Path(folder).glob("*.deb"))


def _program(root: Path, log: Path) -> None:
    """The environment: an interpreter by link, the wheel, the libraries; Debian's libraries come after these."""
    with tempfile.TemporaryDirectory(prefix="cwdp-wheel-") as folder:
        made = wheel.build(Path(folder))
        for package in INSIDE:
            wanted = Path(folder) / f"{package}.txt"
            wanted.write_text(requirements(package, (CHECKOUT / "requirements.txt").read_text()))
            _install(root / package, ["--require-hashes", "-r", wanted], log)
        _install(root / "cwdp", ["--no-index", made], log)
    home = root / "cwdp" / _HOME
    _libraries(root / "cwdp")
    _write(root / "cwdp" / _LIBRARIES / "debian.pth", f"{_DEBIANS_LIBRARIES}\n")
    _write(home / "pyvenv.cfg", _PYVENV)
    _write(home / "bin/cwdp", _ENTRY, mode=0o755)
    (home / "bin/python3").symlink_to(_PYTHON)
    (root / "cwdp/usr/bin").mkdir()
    (root / "cwdp/usr/bin/cwdp").symlink_to("../lib/cwdp/bin/cwdp")


def _libraries(root: Path) -> None:
    """What programs load has a folder of its own, that containers mount; NCCL's name for the verbs shim is beside it."""
    inside, folder = root / _LIBRARIES / "cwdp/rdma/lib", root / str(INSTALLED).lstrip("/")
    shutil.move(inside, folder)
    inside.symlink_to(os.path.relpath(folder, inside.parent))
    (folder / "nccl").mkdir()
    (folder / "nccl/libibverbs.so").symlink_to(f"../{VERBS}")


def _install(root: Path, what: list[str | Path], log: Path) -> None:
    """Install into the environment of a package, and compile what has been installed."""
    libraries = root / _LIBRARIES
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
    ]
    into: list[str | Path] = ["--target", libraries, "--only-binary", ":all:", "--python-version", "3.11"]
    into += ["--no-binary", ",".join(_FROM_SOURCE)]
    run([*pip, *into, *what], CHECKOUT, log)
    shutil.rmtree(libraries / "bin", ignore_errors=True)
    for path in libraries.glob("*.dist-info/direct_url.json"):
        path.unlink()
    for path in sorted(libraries.rglob("tests")):
        shutil.rmtree(path, ignore_errors=True)  # of numpy and scipy: a third of their files
    run([_PYTHON, *_COMPILE, "-s", root, "-p", "/", libraries], CHECKOUT, log)


def requirements(package: str, text: str) -> str:
    """Those lines of a file of requirements, with their hashes, that are about what goes into a package.

    Raises:
        PackageError: one of them is not there.
    """
    entries = {match[1]: match[0] for match in re.finditer(r"^([\w-]+)==(?:.*\\\n)*.*\n", text, re.MULTILINE)}
    if lacks := [name for name in INSIDE[package] if name not in entries]:
        raise PackageError(
            f"requirements.txt lacks {', '.join(lacks)}", "Correct INSIDE in tools/packages/deb.py."
        )
    return "".join(entries[name] for name in INSIDE[package])


def _documents(root: Path) -> None:
    folder = root / "usr/share/doc/cwdp"
    shutil.copytree(
        CHECKOUT / "docs", folder / "docs", ignore=shutil.ignore_patterns("results", "*.svg", "*.png")
    )
    shutil.copy(CHECKOUT / "README.md", folder)


def _services(root: Path, debian: Path) -> None:
    """The units, where the program is on such hosts; configurations; the manager's nats-server and its user."""
    for service, settings in _SETTINGS.items():
        unit = (_UNITS / f"cwdp-{service}.service").read_text()
        _write(debian / f"cwdp-{service}.service", packaged_unit(service, unit))
        _write(root / f"cwdp-{service}/etc/cwdp/{service}.toml", settings)
    shutil.copy(_UNITS / "cwdp.sysusers.conf", debian / "cwdp-manager.sysusers")
    for name in ("rdma", "uprobes"):
        _write(
            root / f"cwdp-agent/usr/share/doc/cwdp-agent/examples/{name}.conf",
            (_UNITS / f"cwdp-agent-{name}.conf").read_text(),
        )
    program = Path(shutil.which(_NATS_SERVER) or "").resolve()
    inside = root / "cwdp-manager" / _HOME / "bin"
    inside.mkdir()
    shutil.copy(program, inside / _NATS_SERVER)
    query = ("dpkg-query", "-W", "-f", "${source:Package} (= ${source:Version})", _NATS_SERVER)
    _write(root / "built-using", subprocess.run(query, check=True, capture_output=True, text=True).stdout)


def packaged_unit(service: str, text: str) -> str:
    """A unit of the checkout as it is in the package.

    An agent without a credential is not started, rather than started for ever; the manager finds its own nats-server.
    """
    assert _CHECKOUTS_PROGRAM in text
    text = text.replace(_CHECKOUTS_PROGRAM, _PROGRAM)
    if service == "agent":
        return text.replace(
            "\n[Service]\n", "ConditionPathExists=/var/lib/cwdp-agent/agent.creds\n\n[Service]\n", 1
        )
    path = f"Environment=PATH=/{_HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return text.replace("\n[Service]\n", f"\n[Service]\n{path}\n", 1)


def _changelog() -> str:
    """One entry, dated as the newest commit: the history is in the repository."""
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    asked = subprocess.run(
        ("git", "log", "-1", "--format=%ct"), cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    date = formatdate(float(asked.stdout or time.time()))
    return (
        f"cwdp ({version}) bookworm; urgency=medium\n\n  * Built from the repository at this version.\n\n"
        f" -- cwdp maintainers <cwdp@localhost>  {date}\n"
    )


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


if __name__ == "__main__":
    print_made(lambda: build(OUTPUT))
