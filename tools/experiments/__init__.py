"""Experiments in the lab: the same traffic with cwdp, without it, and with what others have proposed.

Each is a command of `cwdp lab run`: a folder with its `run`, or a module (`demo`, `sync`). What they share: `options`,
`jobs` (who sends to whom), `optimum` (what the links can carry, by linear program), `measure` (what a run's result
says), `runs` (traffic in a lab whose fleet is up), `report` (tables).
"""
