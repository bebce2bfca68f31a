"""The verbs shim without hardware: a libibverbs and a libmlx5 whose devices are none, a program that calls them, an agent.

Tests and the benchmark have the program do something (`Program`), look at which calls reached the provider, and give
tables and orders as the agent of a host does (`FakeAgent`).
"""

from tools.shim.agent import FakeAgent
from tools.shim.build import Built, build
from tools.shim.program import Call, Program

__all__ = ["Built", "Call", "FakeAgent", "Program", "build"]
