"""Processors, NUMA nodes and what governs their frequency."""

from collections.abc import Iterator

from cwdp.audit.notes import Notes, cpus, table
from cwdp.audit.source import Source
from cwdp.audit.subjects import Found
from cwdp.audit.unreadable import Unreadable

CPU, NODES = "sys/devices/system/cpu", "sys/devices/system/node/online"


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `processors`."""
    del found
    notes = Notes("host")
    notes.note("cpu_model", lambda: _model(source))
    notes.note("cpus", lambda: len(cpus(source.text(f"{CPU}/online"))))
    notes.note("numa_nodes", lambda: len(cpus(source.text(NODES))) if source.exists(NODES) else 1)
    notes.note("governors", lambda: _governors(source))
    yield notes


def _model(source: Source) -> str:
    told = table(source.head("proc/cpuinfo"))
    model = told.get("model name") or told.get("Model")
    if not model:
        raise Unreadable("the kernel does not tell")
    return model


def _governors(source: Source) -> list[str]:
    """Documentation/admin-guide/pm/cpufreq.rst: a folder for each set of processors that change together."""
    folder = f"{CPU}/cpufreq"
    policies = source.names(folder) if source.exists(folder) else []
    policies = [name for name in policies if name.startswith("policy")]
    if not policies:
        raise Unreadable("the kernel governs no frequency")
    return sorted({source.text(f"{folder}/{name}/scaling_governor") for name in policies})
