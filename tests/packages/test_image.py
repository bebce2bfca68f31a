"""The agent's image: an OCI layout, unpacked and run in a chroot with the capabilities that the manifest gives it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import need
import pytest
import yaml

from cwdp import __version__
from cwdp.rdma.libraries import INSTALLED, VERBS
from manager.identity.authority import Authority
from tools.packages.checkout import CHECKOUT
from tools.packages.image import ENTRYPOINT

CAPABILITIES = "-all,+bpf,+net_admin,+net_raw,+perfmon,+sys_nice"
SCRIPT = f"""
set -eu
cd "$1"
ip link set lo up
ip link add nic0 type veth peer name far0
ip address add 10.9.0.1/24 dev nic0
ip link set nic0 up
ip link set far0 up
mount -t proc proc rootfs/proc
mount -t sysfs sysfs rootfs/sys
mount -t bpf bpf rootfs/sys/fs/bpf
mkdir -p rootfs/etc/cwdp rootfs/var/lib/cwdp-agent
cp agent.toml rootfs/etc/cwdp
cp agent.creds keys.toml rootfs/var/lib/cwdp-agent
chmod 600 rootfs/var/lib/cwdp-agent/*
inside() {{ chroot rootfs setpriv --bounding-set={CAPABILITIES} --no-new-privs "$@"; }}
inside /usr/bin/cwdp agent run 2> agent.log &
for _ in $(seq 100); do
	inside cwdp dataplane status --json > status.json 2> /dev/null && grep -q nic0 status.json && break
	sleep 0.1
done
inside cwdp doctor --json > doctor.json || true
inside cwdp dataplane unload > unload.txt
"""


@pytest.fixture(scope="module")
def bundle(layout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    need.root("as the image's files are root's")
    into = tmp_path_factory.mktemp("image") / "bundle"
    subprocess.run(
        ("umoci", "unpack", "--image", f"{layout}:{__version__}", into), check=True, capture_output=True
    )
    return into


def blob(layout: Path, descriptor: dict[str, Any]) -> Any:
    return json.loads((layout / "blobs" / descriptor["digest"].replace(":", "/")).read_text())


def test_it_is_an_oci_layout_that_starts_the_agent(layout: Path) -> None:
    assert json.loads((layout / "oci-layout").read_text())["imageLayoutVersion"] == "1.0.0"
    (tagged,) = json.loads((layout / "index.json").read_text())["manifests"]
    assert tagged["annotations"]["org.opencontainers.image.ref.name"] == __version__
    manifest = blob(layout, tagged)
    assert len(manifest["layers"]) == 1
    config = blob(layout, manifest["config"])
    assert (config["os"], config["config"]["Entrypoint"], config["config"]["Cmd"]) == (
        "linux",
        [ENTRYPOINT],
        ["agent", "run"],
    )


def test_what_reaches_debian_from_here_is_not_in_it(bundle: Path) -> None:
    etc = bundle / "rootfs/etc"
    assert (etc / "apt/sources.list").read_text() == "deb http://deb.debian.org/debian bookworm main\n"
    assert list((etc / "apt/sources.list.d").iterdir()) == []
    assert not (etc / "resolv.conf").exists()


def test_the_verbs_shim_is_in_it_to_be_copied_to_where_applications_mount_it(
    bundle: Path,
) -> None:
    """By the command of the DaemonSet's container; a file that a program has mapped stays as it is."""
    documents = yaml.safe_load_all((CHECKOUT / "tools/packages/daemonset.yaml").read_text())
    (pod,) = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "DaemonSet"]
    (copies,) = [one for one in pod["initContainers"] if one["name"] == "verbs-shim"]
    root, into = bundle / "rootfs", bundle / "rootfs/verbs"
    into.mkdir()
    (into / VERBS).write_text("older")
    with (into / VERBS).open() as mapped:
        subprocess.run(("chroot", root, *copies["command"]), check=True, timeout=60)
        assert mapped.read() == "older"
    assert (into / VERBS).read_bytes() == (root / str(INSTALLED).lstrip("/") / VERBS).read_bytes()
    assert (into / "nccl/libibverbs.so").read_bytes() == (into / VERBS).read_bytes()


def test_the_agent_runs_in_it_with_five_capabilities(bundle: Path) -> None:
    (bundle / "agent.toml").write_text('host = "h1"\nnics = ["nic0"]\nnats = "nats://127.0.0.1:1"\n')
    Authority.new().host_credential("h1").save(bundle / "agent.creds")
    (bundle / "keys.toml").write_text(
        'send = 1\n\n[[key]]\nid = 1\nsecret = "000102030405060708090a0b0c0d0e0f"\n'
    )
    command = (
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        SCRIPT,
        "sh",
        bundle,
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    log = (bundle / "agent.log").read_text()
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    (nic,) = json.loads((bundle / "status.json").read_text())["interfaces"]
    assert (nic["ifname"], nic["mode"], nic["attached"]) == ("nic0", "native", True)
    doctor = {check["name"]: check for check in json.loads((bundle / "doctor.json").read_text())["checks"]}
    assert doctor["privileges"]["verdict"] == "ok"
    assert doctor["dataplane"]["verdict"] == "ok"
    assert doctor["agent"]["what"] == "it runs"
    assert (bundle / "unload.txt").read_text() == "nic0: unloaded\n"
