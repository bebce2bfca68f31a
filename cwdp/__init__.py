"""cwdp on one host: dataplane, agent and the command line."""

__version__ = "0.1.0"
