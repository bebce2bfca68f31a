"""What the kernel tells of programs that wait for a processor."""

from pathlib import Path

import pytest

from cwdp.agent.programs.waits import processor_waits_ns

TEXT = "some avg10=1.13 avg60=0.64 avg300=0.16 total=635346\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"


@pytest.mark.parametrize(
    ("text", "waits_ns"), [(TEXT, 635_346_000), ("", None), ("full avg10=0.00 total=7\n", None)]
)
def test_the_waits_of_some_program_are_told(tmp_path: Path, text: str, waits_ns: int | None) -> None:
    file = tmp_path / "cpu"
    file.write_text(text)
    assert processor_waits_ns(file) == waits_ns


def test_a_kernel_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    assert processor_waits_ns(tmp_path / "cpu") is None
