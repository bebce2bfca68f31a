"""Which queue pairs are of which job: the map `jobs` of one interface."""

from collections.abc import Iterable

import numpy as np

from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.steering.steering import QpKey, parse_address
from cwdp.errors import ConfigError
from cwdp.shared.slices import Job
from cwdp.slices.shares import job_number


def replace(jobs_fd: int, wanted: Iterable[Job], *, managed: bool) -> None:
    """Have these jobs in place of those that were given in the same way; what was given by hand is not overruled.

    Raises:
        ConfigError: they have too many queue pairs.
    """
    records = {
        _key(pair.dst, pair.qpn): _record(job.name, managed) for job in wanted for pair in job.queue_pairs
    }
    for key, value in libbpf.hash_items(jobs_fd, abi.QP_KEY.itemsize, abi.JOB.itemsize):
        was_managed = bool(np.frombuffer(value, dtype=abi.JOB)[0]["managed"])
        if managed and not was_managed:
            records.pop(key, None)
        elif managed == was_managed and key not in records:
            libbpf.hash_delete(jobs_fd, key)
    for key, record in records.items():
        try:
            libbpf.hash_update(jobs_fd, key, record)
        except OSError as error:
            raise ConfigError(
                f"the jobs have more than {abi.JOB_QPS} queue pairs", "list those of this host only"
            ) from error


def _key(dst: str, qpn: int) -> bytes:
    return QpKey(parse_address(dst), qpn).pack()


def _record(name: str, managed: bool) -> bytes:
    record = np.zeros((), dtype=abi.JOB)
    record["job"], record["managed"] = job_number(name), managed
    return record.tobytes()
