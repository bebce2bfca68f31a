"""How `cwdp manager status` looks on a terminal."""

from typing import Any

from rich.table import Table

_DONE = {
    "moved": "moved for room",
    "rerouted": "moved off dead links",
    "backed_up": "given a way round",
    "released": "let go of, idle",
    "adopted": "taken up from another manager",
    "refused": "not steered by their host",
    "held_back": "moves held back by a limit",
    "no_way_round": "without any way round",
}


def status(answer: Any) -> Table:
    """Who leads, and the planner."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    planner = answer["planner"]
    leads = "leads" if answer["leads"] else f"waits; {answer['leader'] or 'nobody'} leads"
    table.add_row("manager", f"{answer['name']}: {leads}")
    table.add_row("hosts", f"{answer['hosts_up']} up")
    table.add_row("planner", _state(answer))
    table.add_row("queue pairs", f"{planner['queue_pairs']} send, {planner['steered']} are steered")
    table.add_row("ways round", f"{planner['backed_up']} ready")
    table.add_row("fullest link", f"{planner['fullest_link_share']:.0%} of what it carries, as planned")
    table.add_row("dead links", ", ".join(planner["dead_links"]) or "none")
    for name, meaning in _DONE.items():
        table.add_row(meaning, str(planner["totals"][name]))
    return table


def _state(answer: Any) -> str:
    if not answer["planner"]["enabled"]:
        return "off"
    return "on" if answer["leads"] else "the leader's business"
