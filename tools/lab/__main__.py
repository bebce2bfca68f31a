"""`python -m tools.lab`: the lab's commands without the rest of cwdp."""

from tools.errors import exit_on_error
from tools.lab_cli import lab

with exit_on_error():
    lab(prog_name="cwdp lab")
