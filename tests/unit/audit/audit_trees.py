"""Writes the trees of recorded hosts from their descriptions in `machines/`: see the README there."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MACHINES = Path(__file__).parent / "machines"
OF_EACH = ("driver", "ethtool", "module", "dcb", "devlink")
"""Answers that are about one NIC or device: a file each."""


def names() -> list[str]:
    return sorted(path.stem for path in MACHINES.glob("*.json"))


def write(name: str, root: Path) -> Path:
    """Write a machine's tree below a folder that is not there yet."""
    found = described(name)
    for path, content in files_of(found["files"]):
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    for path, target in found.get("links", {}).items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    for kind, told in found["answers"].items():
        for path, answer in answers_of(kind, told):
            place = root / "answers" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(answer))
    return root


def described(name: str) -> dict[str, Any]:
    """A description with its repetitions written out."""
    told = json.loads((MACHINES / f"{name}.json").read_text())
    found: dict[str, Any] = {"files": {}, "links": {}, "answers": {}}
    merge(found, {key: told[key] for key in found if key in told})
    for repeated in told.get("each", []):
        for variables in repeated["of"]:
            merge(found, {key: filled(repeated[key], variables) for key in found if key in repeated})
    return found


def merge(into: Any, more: dict[str, Any]) -> None:
    """Folders are joined, lists are appended."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list):
            into[key] += value
        else:
            into[key] = value


def filled(value: Any, variables: dict[str, Any]) -> Any:
    """A description with the values of `{name}`; one that is nothing else keeps its type."""
    if isinstance(value, dict):
        return {filled(key, variables): filled(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, variables) for one in value]
    if not isinstance(value, str):
        return value
    for name, given in variables.items():
        if value == f"{{{name}}}":
            return given
        value = value.replace(f"{{{name}}}", str(given))
    return value


def files_of(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, bytes]]:
    """A dict is a folder, a list is one of numbered files; `pcie` makes a configuration space."""
    for name, value in tree.items():
        if isinstance(value, list):
            yield from files_of({str(i): one for i, one in enumerate(value)}, f"{path}{name}/")
        elif name == "config" and path.startswith("sys/devices/"):
            yield f"{path}{name}", configuration(**value)
        elif isinstance(value, dict):
            yield from files_of(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", f"{value}\n".encode()


def answers_of(kind: str, told: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if kind not in OF_EACH:
        yield f"{kind}.json", told
        return
    for of, answer in told.items():
        yield (
            f"{kind}/{of}.json",
            memory(**answer) if kind == "module" and "problem" not in answer else answer,
        )


def configuration(read_request: int = 0, payload: int = 128, acs: int = 0) -> bytes:
    """A PCI configuration space: power management, then PCI Express; ACS is the second extended capability."""
    space = bytearray(4096)
    struct.pack_into("<H", space, 0x06, 0x10)
    space[0x34] = 0x40
    space[0x40:0x42] = 0x01, 0x60
    if read_request:
        space[0x60:0x62] = 0x10, 0x00
        sizes = [128 << i for i in range(6)]
        control = sizes.index(read_request) << 12 | sizes.index(payload) << 5
        struct.pack_into("<H", space, 0x68, control)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x150 << 20)
    struct.pack_into("<I", space, 0x150, 0x000D | 1 << 16)
    struct.pack_into("<H", space, 0x156, acs)
    return bytes(space)


def memory(*, form: str, vendor: str, part: str, serial: str, **monitors: Any) -> dict[str, str]:
    """The memory of a transceiver; powers in tenths of a microwatt."""
    rx, tx, temperature = (
        monitors.get(name, none) for name, none in (("rx", []), ("tx", []), ("temperature", 0))
    )
    page, lanes, diagnostics = bytearray(256), bytearray(128), bytearray(128)
    texts, kind = {
        "osfp": ((129, 148, 166), 0x19),
        "qsfp28": ((148, 168, 196), 0x11),
        "sfp": ((20, 40, 68), 3),
    }[form]
    page[0] = kind
    for at, text in zip(texts, (vendor, part, serial), strict=True):
        page[at : at + 16] = text.ljust(16).encode()
    is_copper = not rx
    if form == "osfp":
        page[2], page[212] = (0x80, 0x0A) if is_copper else (0, 0)
        struct.pack_into(">h", page, 14, round(temperature * 256))
        struct.pack_into(f">{len(tx)}H", lanes, 154 - 128, *tx)
        struct.pack_into(f">{len(rx)}H", lanes, 186 - 128, *rx)
    elif form == "qsfp28":
        page[147] = 0xA0 if is_copper else 0
        struct.pack_into(">h", page, 22, round(temperature * 256))
        struct.pack_into(f">{len(rx)}H", page, 34, *rx)
        struct.pack_into(f">{len(tx)}H", page, 50, *tx)
    else:
        page[8], page[92] = (0x04, 0) if is_copper else (0, 0x40)
        struct.pack_into(">h", diagnostics, 96, round(temperature * 256))
        struct.pack_into(f">{len(tx)}H", diagnostics, 102, *tx)
        struct.pack_into(f">{len(rx)}H", diagnostics, 104, *rx)
    paged = form == "osfp" and not is_copper
    return {
        "memory": page.hex(),
        "lanes": lanes.hex() if paged else "",
        "diagnostics": diagnostics.hex() if form == "sfp" and not is_copper else "",
    }
