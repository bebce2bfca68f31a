"""`python -m cwdp` is the command `cwdp`."""

from cwdp.cli import main

main(prog_name="cwdp")
