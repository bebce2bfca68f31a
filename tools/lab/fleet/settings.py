"""What a manager's configuration says, as TOML."""

import json

from msgspec.structs import asdict

from manager.config import PlannerSettings, ProbeSettings, RoceConfig


def manager_toml(*, probes: ProbeSettings, roce: RoceConfig, planner: PlannerSettings) -> str:
    """The sections of the manager's configuration of these names; and whoever is on its machine may look."""
    lines = ['[roles]\nloopback = "viewer"\n']
    for section, settings in {"probes": probes, "roce": roce, "planner": planner}.items():
        lines.append(f"[{section}]\n")
        lines += [f"{name} = {json.dumps(value)}\n" for name, value in asdict(settings).items()]
    return "".join(lines)
