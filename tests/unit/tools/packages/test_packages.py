"""What Debian packages are made of, as far as it is made of text."""

import os
import re
from pathlib import Path

import pytest
import yaml

from cwdp.rdma.libraries import INSTALLED
from cwdp.rdma.shimwire import SOCKET
from tools.packages import deb, image
from tools.packages.checkout import CHECKOUT, PackageError

REQUIREMENTS = (CHECKOUT / "requirements.txt").read_text()


@pytest.mark.parametrize("package", deb.INSIDE)
def test_what_goes_inside_is_pinned_with_its_hashes(package: str) -> None:
    found = deb.requirements(package, REQUIREMENTS)
    assert re.findall(r"^([\w-]+)==", found, re.MULTILINE) == list(deb.INSIDE[package])
    for entry in re.split(r"(?m)^(?=\w)", found)[1:]:
        assert "--hash=sha256:" in entry


def test_every_requirement_is_inside_or_a_dependency_on_debian() -> None:
    names = set(re.findall(r"^([\w-]+)==", REQUIREMENTS, re.MULTILINE))
    inside = {name for names in deb.INSIDE.values() for name in names}
    control = (CHECKOUT / "tools/packages/debian/control").read_text()
    theirs = {
        "markdown-it-py",
        "mdurl",
        "pygments",
        "cffi",
        "pycparser",
    }  # Debian's rich and nacl ask for their own
    debians = {"pynacl": "nacl"}
    left = {debians.get(name, name) for name in names - inside - theirs}
    assert {name for name in left if f"python3-{name}" not in control} == set()


def test_a_requirement_that_is_gone_is_named() -> None:
    with pytest.raises(PackageError, match="lacks scipy"):
        deb.requirements("cwdp-manager", REQUIREMENTS.replace("\nscipy==", "\nscifi=="))


def test_the_image_is_made_of_the_last_packages_and_says_which_is_not_made(tmp_path: Path) -> None:
    for age_s, name in enumerate(
        ["cwdp_1.0-1_amd64.deb", "cwdp_0.9-1_amd64.deb", "cwdp-manager_1.0-1_all.deb"]
    ):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1e9 - age_s, 1e9 - age_s))
    with pytest.raises(PackageError, match="no package cwdp-agent in "):
        image.made(tmp_path)
    (tmp_path / "cwdp-agent_1.0-1_all.deb").touch()
    assert [path.name for path in image.made(tmp_path)] == [
        "cwdp_1.0-1_amd64.deb",
        "cwdp-agent_1.0-1_all.deb",
    ]


@pytest.mark.parametrize("service", ["agent", "manager"])
def test_a_unit_runs_the_packages_program(service: str) -> None:
    original = (CHECKOUT / f"tools/systemd/cwdp-{service}.service").read_text()
    made = deb.packaged_unit(service, original)
    assert f"ExecStart=/usr/bin/cwdp {service} run " in made
    assert "/opt/cwdp" not in made
    left = [line for line in original.splitlines() if not line.startswith("ExecStart=")]
    assert [line for line in left if line not in made.splitlines()] == []


def test_the_container_has_the_capabilities_of_the_unit_and_no_more() -> None:
    unit = (CHECKOUT / "tools/systemd/cwdp-agent.service").read_text()
    (bounding,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    documents = list(yaml.safe_load_all(Path(CHECKOUT / "tools/packages/daemonset.yaml").read_text()))
    (pod,) = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "DaemonSet"]
    for container in (*pod["initContainers"], *pod["containers"]):
        held = container["securityContext"]["capabilities"]
        assert held["drop"] == ["ALL"]
        wanted = set() if container["name"] == "verbs-shim" else set(bounding.split())
        assert {f"CAP_{name}" for name in held.get("add", [])} == wanted


def test_programs_in_containers_have_the_shim_and_its_socket_by_the_daemonset() -> None:
    documents = list(yaml.safe_load_all(Path(CHECKOUT / "tools/packages/daemonset.yaml").read_text()))
    (pod,) = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "DaemonSet"]
    volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    (agent,) = pod["containers"]
    (copies,) = [one for one in pod["initContainers"] if one["name"] == "verbs-shim"]
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in agent["volumeMounts"]}
    assert mounts[str(Path(SOCKET).parent)] == str(Path(SOCKET).parent)
    assert copies["command"][-2:] == [f"{INSTALLED}/.", copies["volumeMounts"][0]["mountPath"] + "/"]
    assert "--remove-destination" in copies["command"]  # programs have the file mapped


def test_the_agents_folder_for_programs_is_its_own_and_open() -> None:
    """The manager, another user, has a folder that is closed: in one that both had, neither could have what it needs."""
    folders = {}
    for service in ("agent", "manager"):
        unit = (CHECKOUT / f"tools/systemd/cwdp-{service}.service").read_text()
        settings = dict(re.findall(r"^(RuntimeDirectory\w*)=(.*)$", unit, re.MULTILINE))
        folders[service] = settings["RuntimeDirectory"], settings["RuntimeDirectoryMode"]
    assert folders["agent"] == (Path(SOCKET).parent.name, "0755")
    assert Path(SOCKET).parent.parent == Path("/run")
    assert folders["manager"] == ("cwdp", "0750")
