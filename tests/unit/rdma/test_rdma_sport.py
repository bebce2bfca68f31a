"""Source ports and flow labels, and changing a queue pair's port where the device can."""

import errno
import sys
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwdp.errors import ConfigError, RdmaError
from cwdp.rdma import sport, verbs


@given(st.integers(sport.SPORT_MIN, sport.SPORT_MAX))
def test_a_flow_label_leads_back_to_its_port(port: int) -> None:
    label = sport.sport_to_flow_label(port)
    assert 0 < label < 1 << 20
    assert sport.flow_label_to_sport(label) == port


@given(st.integers(0, (1 << 20) - 1))
def test_every_flow_label_leads_into_the_dynamic_range(label: int) -> None:
    folded = (label & 0x3FFF) ^ ((label & 0xFC000) >> 14)
    assert sport.flow_label_to_sport(label) == 0xC000 | folded


@given(st.integers(1, (1 << 24) - 1))
def test_soft_roce_ports_lie_in_the_dynamic_range(qpn: int) -> None:
    assert sport.SPORT_MIN <= sport.rxe_ud_sport(qpn) <= sport.SPORT_MAX


@pytest.mark.parametrize("port", [0, 4791, sport.SPORT_MIN - 1, sport.SPORT_MAX + 1])
def test_other_ports_are_refused(port: int) -> None:
    for call in (sport.check_sport, sport.sport_to_flow_label, lambda p: sport.set_udp_sport(None, p)):
        with pytest.raises(ConfigError, match=str(port)):
            call(port)


class FakeError(Exception):
    """As pyverbs raises it."""

    def __init__(self, message: str, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code


@pytest.fixture
def mlx5(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A device driver of which a test says how it answers."""
    found = SimpleNamespace(calls=[], error=None)

    class Mlx5QP:
        @staticmethod
        def modify_udp_sport(queue_pair: object, udp_sport: int) -> None:
            found.calls.append((queue_pair, udp_sport))
            if found.error is not None:
                raise found.error

    modules = {
        "providers.mlx5.mlx5dv": SimpleNamespace(Mlx5QP=Mlx5QP),
        "pyverbs_error": SimpleNamespace(PyverbsError=FakeError),
    }
    monkeypatch.setattr(verbs, "load", modules.__getitem__)
    return found


def test_the_port_of_a_queue_pair_is_set(mlx5: SimpleNamespace) -> None:
    qp = SimpleNamespace(qp_num=7)
    sport.set_udp_sport(qp, 55555)
    assert mlx5.calls == [(qp, 55555)]


def test_a_device_that_cannot_says_so(mlx5: SimpleNamespace) -> None:
    mlx5.error = FakeError("Failed to modify UDP source port", errno.EOPNOTSUPP)
    with pytest.raises(RdmaError, match="device cannot change") as caught:
        sport.set_udp_sport(SimpleNamespace(qp_num=7), 55555)
    assert "mlx5" in caught.value.hint


def test_a_queue_pair_in_another_state(mlx5: SimpleNamespace) -> None:
    mlx5.error = FakeError("Failed: Invalid argument.", errno.EINVAL)
    with pytest.raises(RdmaError) as caught:
        sport.set_udp_sport(SimpleNamespace(qp_num=7), 55555)
    assert caught.value.message.endswith("queue pair 7 was not changed: Failed: Invalid argument")
    assert "RTS" in caught.value.hint


def test_without_pyverbs_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyverbs", ModuleType("pyverbs"))
    monkeypatch.setitem(sys.modules, "pyverbs.providers.mlx5.mlx5dv", None)
    with pytest.raises(verbs.VerbsMissingError, match="pyverbs is missing") as caught:
        sport.set_udp_sport(SimpleNamespace(qp_num=7), 55555)
    assert "python3-pyverbs" in caught.value.hint
