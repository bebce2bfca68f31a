"""`cwdp audit`: the group of its commands, each imported when it is called: `verdict` is asked before each job."""

from cwdp.cli.lazy import LazyGroup

_ASKED = "cwdp.cli.audit.commands"

audit = LazyGroup(
    "audit",
    commands_by_path={
        "baseline": (f"{_ASKED}:baseline", "Print checks that hold like hosts to what one is."),
        "diff": (f"{_ASKED}:diff", "Show what has changed between two audits."),
        "facts": ("cwdp.cli.audit.told:facts", "Show all facts of this host."),
        "list": (f"{_ASKED}:list_", "List the audits that are kept."),
        "local": (
            "cwdp.cli.audit.local:local",
            "Hold this host against what is expected, without a manager.",
        ),
        "record": ("cwdp.cli.audit.told:record", "Write what this host's facts are read from."),
        "run": (f"{_ASKED}:run", "Have hosts tell their facts, and hold these against what is expected."),
        "show": (f"{_ASKED}:show_", "Show what an audit came to."),
        "verdict": (f"{_ASKED}:verdict", "Say whether a host passed the last audit."),
    },
    help="Whether every host, NIC and GPU is what it should be, before a job runs.\n\n"
    "Hosts tell facts: hardware, firmware, settings, counters. These are held against checks. Nothing is ever changed.",
)
