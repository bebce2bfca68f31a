"""Jobs of programs, by their cgroups and by what they say of their environment."""

import pytest

from cwdp.agent.programs.jobs import MOST, job, told_job

POD = "0a1b2c3d-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("cgroups", "told", "found"),
    [
        (["/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"], "", "slurm:4711"),
        (["/slurm/uid_1000/job_12/step_batch"], "SLURM_JOB_ID=99", "slurm:12"),
        (["/user.slice/job_12/x"], "", ""),
        (["/user.slice"], "SLURM_JOB_ID=99", "slurm:99"),
        (["/user.slice"], "TORCHELASTIC_RUN_ID=none", ""),
        (["/user.slice"], "TORCHELASTIC_RUN_ID=llama=7", "torchrun:llama=7"),
        (["/user.slice"], "HOME=/root", ""),
        ([], "SLURM_JOB_ID", ""),
        ([], "", ""),
        (
            [f"/kubepods.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/cri-1.scope"],
            "",
            f"pod:{POD}",
        ),
        ([f"/kubepods/burstable/pod{POD}/0123"], "", f"pod:{POD}"),
        ([f"/kubepods/burstable/pod{POD}/0123"], "RAY_JOB_ID=5", "ray:5"),
        (["/kubepods/podx"], "", ""),
    ],
)
def test_jobs(cgroups: list[str], told: str, found: str) -> None:
    assert job(cgroups, told) == found


def test_a_job_is_never_longer_than_it_may_be() -> None:
    assert len(job([], "PBS_JOBID=" + "x" * 1_000)) == MOST
    assert job(["/slurm/job_" + "9" * 400 + "/step_0"], "") == ""


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, ""),
        ({"RANK": "3"}, ""),
        ({"TORCHELASTIC_RUN_ID": "llama", "SLURM_JOB_ID": "7"}, "SLURM_JOB_ID=7"),
        ({"TORCHELASTIC_RUN_ID": "none", "RAY_JOB_ID": ""}, ""),
        ({"RAY_JOB_ID": "a\x1b[1mé\n"}, "RAY_JOB_ID=a?[1m??"),
    ],
)
def test_what_an_environment_tells(environ: dict[str, str], told: str) -> None:
    assert told_job(environ) == told
