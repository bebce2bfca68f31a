"""In the machine, with systemd as init: install, configure, start, watch, upgrade under traffic, remove, purge.

Usage: guest.py FOLDER. It holds the packages of one version in `before`, of the next in `after`. What was found after
each step is written, a line of JSON a step, to the second serial port; where there is none, to `results` in the folder.
"""

import ctypes
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVICES = ("cwdp-agent", "cwdp-manager")
PACKAGES = (*SERVICES, "cwdp")
CONFIG = Path("/etc/cwdp")
SERIAL = Path("/dev/ttyS1")
AGENT = 'nics = ["nic0"]  # by hand\n'
HERE, FAR = "10.9.0.1", "10.9.0.2"
PORTS = (4791, 9000)
PACKETS_PER_S = 100
PATIENCE_S = 900.0
ATTACHED = """
import json
from pathlib import Path
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.loading import attached, hooks
from cwdp.dataplane.pinned import tree

(where,) = tree.trees_here()
found = {hook.program: attached.runs(where, attached.interface_of(where), hook) for hook in (hooks.XDP, hooks.EGRESS)}
with libbpf.opened(where.path / tree.XDP_LINK) as link:
    told = Path(f"/proc/self/fdinfo/{link}").read_text().splitlines()
found["link"] = next(int(line.split()[1]) for line in told if line.startswith("link_id:"))
print(json.dumps(found))
"""


class Traffic:
    """Numbered UDP packets from the far end of the wire to this host and back, until it is stopped."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._sent = [0, 0]
        self._seen: list[set[int]] = [set(), set()]
        far = in_namespace("far", lambda: [udp(FAR, port) for port in PORTS])
        near = [udp(HERE, port) for port in PORTS]
        self._threads = [
            threading.Thread(target=self._send, args=(0, near, FAR)),
            threading.Thread(target=self._send, args=(1, far, HERE)),
            *(threading.Thread(target=self._receive, args=(0, one)) for one in far),
            *(threading.Thread(target=self._receive, args=(1, one)) for one in near),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> dict[str, Any]:
        """End it; what was sent and what was lost in either direction."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        lost = [sent - len(seen) for sent, seen in zip(self._sent, self._seen, strict=True)]
        return {"sent": self._sent, "lost": lost}

    def _send(self, way: int, sockets: list[socket.socket], to: str) -> None:
        while not self._ending.wait(1 / PACKETS_PER_S):
            number = self._sent[way]
            which = number % len(PORTS)
            sockets[which].sendto(number.to_bytes(8, "big") + bytes(120), (to, PORTS[which]))
            self._sent[way] += 1

    def _receive(self, way: int, one: socket.socket) -> None:
        one.settimeout(2.0)
        while True:
            try:
                data = one.recv(2048)
            except TimeoutError:
                if self._ending.is_set():
                    return
            else:
                self._seen[way].add(int.from_bytes(data[:8], "big"))


def udp(address: str, port: int) -> socket.socket:
    """A socket of this thread's network namespace."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, port))
    return made


def in_namespace(name: str, work: Callable[[], Any]) -> Any:
    """Do something in another network namespace, in a thread of its own."""
    found = []

    def enter() -> None:
        with Path(f"/run/netns/{name}").open() as namespace:
            assert ctypes.CDLL(None).setns(namespace.fileno(), 0x40000000) == 0
        found.append(work())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return found[0]


def run(*command: str) -> str:
    """What a command says; its failure is told and raised."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}", flush=True)
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr[-800:]}")
    return done.stdout


def succeeds(*command: str) -> bool:
    """Whether a command ends well."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def shown(service: str, *properties: str) -> dict[str, str]:
    """What systemd says of a service."""
    lines = run("systemctl", "show", service, "-p", ",".join(properties)).splitlines()
    return dict(line.split("=", 1) for line in lines)


def until(holds: Callable[[], bool], what: str) -> float:
    """Wait for something; the seconds that it took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() > began + PATIENCE_S:
            raise RuntimeError(f"waited {PATIENCE_S:.0f} s for {what}")
        time.sleep(0.5)
    return time.monotonic() - began


def is_active(service: str) -> bool:
    """Whether a service has said that it is ready."""
    return shown(service, "ActiveState")["ActiveState"] == "active"


def main_pid(service: str) -> int:
    """Of a service; 0 where it does not run."""
    return int(shown(service, "MainPID")["MainPID"])


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def programs() -> dict[str, int]:
    """The kernel's numbers of the programs at the hooks, and of the link that holds that at XDP."""
    found: dict[str, int] = json.loads(run("/usr/lib/cwdp/bin/python3", "-c", ATTACHED))
    return found


def state() -> dict[str, Any]:
    """Whether the services are enabled, and run."""
    return {
        "enabled": {name: succeeds("systemctl", "is-enabled", "-q", name) for name in SERVICES},
        "active": {name: is_active(name) for name in SERVICES},
    }


def network() -> dict[str, Any]:
    """A wire from this host to a namespace."""
    succeeds("modprobe", "veth")
    for command in (
        "netns add far",
        "link add nic0 type veth peer name far0 netns far",
        f"addr add {HERE}/24 dev nic0",
        "link set nic0 up",
        "-n far link set lo up",
        f"-n far addr add {FAR}/24 dev far0",
        "-n far link set far0 up",
    ):
        run("ip", *command.split())
    return {}


def install(folder: Path) -> dict[str, Any]:
    """The version before, on a host that has never seen it, and has neither compiler nor configuration."""
    began = time.monotonic()
    run("dpkg", "-i", *map(str, sorted((folder / "before").glob("*.deb"))))
    until(lambda: is_active("cwdp-manager"), "the manager")
    found = state() | {"took_s": time.monotonic() - began}
    found["compilers"] = [name for name in ("clang", "gcc", "cc") if succeeds("which", name)]
    status = status_of(main_pid("cwdp-manager"))
    found["manager_user"] = pwd.getpwuid(int(status["Uid"].split()[0])).pw_name
    found["manager_capabilities"] = int(status["CapEff"], 16)
    found["version"] = run("dpkg-query", "-W", "-f", "${Version}", "cwdp")
    return found


def start() -> dict[str, Any]:
    """Once it is configured the agent starts, loads the dataplane, and is heard by the manager."""
    (CONFIG / "agent.toml").write_text(AGENT)
    run("cwdp", "agent", "join", run("cwdp", "fleet", "invite", socket.gethostname()).strip())
    run("systemctl", "restart", "cwdp-agent")
    until(lambda: bool(json.loads(run("cwdp", "host", "--json"))["hosts"]), "the manager to hear the agent")
    found = state()
    status = status_of(main_pid("cwdp-agent"))
    found["agent_capabilities"] = int(status["CapBnd"], 16)
    (found["dataplane"],) = json.loads(run("cwdp", "dataplane", "status", "--json"))["interfaces"]
    doctor = subprocess.run(("cwdp", "doctor", "--json"), capture_output=True, text=True, check=False)
    found["doctor_status"], found["doctor"] = doctor.returncode, json.loads(doctor.stdout)
    found["exposure"] = {
        name: run("systemd-analyze", "security", "--no-pager", name).splitlines()[-1].strip()
        for name in SERVICES
    }
    return found


def watchdog() -> dict[str, Any]:
    """An agent that stands still is started anew."""
    before = main_pid("cwdp-agent")
    os.kill(before, signal.SIGSTOP)
    took_s = until(
        lambda: main_pid("cwdp-agent") not in (0, before) and is_active("cwdp-agent"), "another agent"
    )
    return {"took_s": took_s, "result": shown("cwdp-agent", "NRestarts"), **state()}


def upgrade(folder: Path) -> dict[str, Any]:
    """The next version, while packets flow both ways."""
    tag = json.loads(run("cwdp", "dataplane", "status", "--json"))["interfaces"][0]["tag"]
    before = {"programs": programs(), "pid": main_pid("cwdp-agent"), "tag": tag}
    traffic = Traffic()
    time.sleep(2.0)
    began = time.monotonic()
    said = run("dpkg", "-i", *map(str, sorted((folder / "after").glob("*.deb"))))
    took_s = time.monotonic() - began
    until(lambda: is_active("cwdp-agent") and is_active("cwdp-manager"), "both services")
    time.sleep(2.0)
    counted = traffic.stop()
    (nic,) = json.loads(run("cwdp", "dataplane", "status", "--json"))["interfaces"]
    return {
        **state(),
        "before": before,
        "after": {"programs": programs(), "pid": main_pid("cwdp-agent"), "tag": nic["tag"]},
        "dataplane": nic,
        "traffic": counted,
        "took_s": took_s,
        "said": [line for line in said.splitlines() if line.startswith("nic0")],
        "version": run("dpkg-query", "-W", "-f", "${Version}", "cwdp"),
        "config_kept": (CONFIG / "agent.toml").read_text() == AGENT,
    }


def remove() -> dict[str, Any]:
    """All of it; what was configured stays."""
    run("dpkg", "-r", *PACKAGES)
    return {
        "left_attached": "xdp" in run("ip", "link", "show", "nic0"),
        "left_pinned": [str(path) for path in Path("/sys/fs/bpf/cwdp").glob("*/*")],
        "left_running": succeeds("pgrep", "-f", "cwdp"),
        "config": sorted(path.name for path in CONFIG.iterdir()),
        "left_of_the_program": [str(path) for path in Path("/usr/lib/cwdp").rglob("*")][:5],
    }


def purge() -> dict[str, Any]:
    """The rest."""
    run("dpkg", "-P", *PACKAGES)
    return {
        "left": [
            str(path) for path in (CONFIG, Path("/var/lib/cwdp"), Path("/usr/lib/cwdp")) if path.exists()
        ]
    }


def main() -> None:
    """Every step, until one fails."""
    folder = Path(sys.argv[1])
    output = SERIAL if SERIAL.exists() else folder / "results"
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "network": network,
        "install": lambda: install(folder),
        "start": start,
        "watchdog": watchdog,
        "upgrade": lambda: upgrade(folder),
        "remove": remove,
        "purge": purge,
    }
    with output.open("w") as results:
        for name, step in steps.items():
            began = time.monotonic()
            print(f"[{began:4.0f} s] {name}", flush=True)
            try:
                found = step()
            except (RuntimeError, OSError, ValueError, AssertionError) as error:
                journal = subprocess.run(
                    ("journalctl", "--no-pager", "-n", "60"), capture_output=True, text=True, check=False
                )
                print(f"{error!r}\n{journal.stdout}", flush=True)
                found = {"error": f"{error!r}\n{journal.stdout}"}
            results.write(
                json.dumps({"step": name, "took_s": time.monotonic() - began, "found": found}) + "\n"
            )
            results.flush()
            if "error" in found:
                return


main()
