"""The checks by subject: each takes the facts and yields results; none of them reads anything of the host."""
