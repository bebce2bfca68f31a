"""Tests say with the mark `needs` which programs and built files they cannot do without."""

import need
import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for what in mark.args:
            need.installed(what)
