"""What is kept of a run around a cut."""

from typing import Any

import numpy as np
import pytest

from tools.picture.summary import Delays, Moments, Span, first_lost_ns, summarise

MS = 1_000_000
START_NS = 7_000 * MS
CUT_NS = START_NS + 1_000 * MS
MOMENTS = Moments(CUT_NS - 5 * MS, CUT_NS + 20 * MS, CUT_NS + 500 * MS, CUT_NS + 550 * MS)
SPAN = Span(first_s=-0.2, last_s=0.8, bin_s=0.1)


def flow(
    number: int, *, first_lost: int | None = None, stall_ms: int = 0, failed: bool = False
) -> dict[str, Any]:
    pauses = [{"start_ns": CUT_NS + MS, "lasted_ns": stall_ms * MS}] if stall_ms else []
    return {"id": number, "first_lost_ns": first_lost, "failed": failed, "pauses": pauses}


def result(flows: list[dict[str, Any]], silent_ms: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    """Each queue pair delivers 1,000 bytes a millisecond, but for some time after the start."""
    rows = [
        {
            "at_ns": START_NS + at_ms * MS,
            "delivered_bytes": {
                each["id"]: 1_000 * (at_ms - max(0, min(at_ms, silent_ms[1]) - silent_ms[0]))
                for each in flows
            },
        }
        for at_ms in range(10, 2_001, 10)
    ]
    return {
        "start_ns": START_NS,
        "flows": flows,
        "timeline": rows,
        "total": {"failed": sum(each["failed"] for each in flows)},
    }


def no_delays() -> Delays:
    return Delays(np.zeros(0, np.int64), np.zeros(0, np.int64))


def test_the_cut_is_when_the_first_packet_was_lost_in_it() -> None:
    flows = [
        flow(1, first_lost=CUT_NS + 2 * MS),
        flow(2, first_lost=CUT_NS),
        flow(3, first_lost=START_NS),
        flow(4),
    ]
    assert first_lost_ns(result(flows), MOMENTS) == CUT_NS
    assert first_lost_ns(result([flow(1)]), MOMENTS) == MOMENTS.cut_ns
    later = flow(1, first_lost=MOMENTS.mended_ns)
    assert first_lost_ns(result([later]), MOMENTS) == MOMENTS.cut_ns


@pytest.mark.parametrize("count", [1, 3, 16])
def test_goodput_is_that_of_all_queue_pairs_by_time_since_the_cut(count: int) -> None:
    flows = [flow(number, first_lost=CUT_NS) for number in range(count)]
    kept = summarise(
        result(flows, silent_ms=(1_000, 1_200)), no_delays(), MOMENTS, SPAN, hit=set(), idle_share=0.5
    )
    whole = count * 8_000_000
    assert kept.goodput_bps == [whole, whole, 0, 0, *[whole] * 6]
    assert kept.mended_s == 0.55


def test_only_queue_pairs_that_were_on_the_link_stood_still_for_it() -> None:
    flows = [flow(1, first_lost=CUT_NS, stall_ms=21), flow(2, stall_ms=25), flow(3, stall_ms=90)]
    kept = summarise(result(flows), no_delays(), MOMENTS, SPAN, hit={1, 2}, idle_share=0.5)
    assert (kept.queue_pairs_hit, kept.queue_pairs_died, kept.stall_max_ms) == (2, 0, 25.0)
    flows.append(flow(4, failed=True))
    kept = summarise(result(flows), no_delays(), MOMENTS, SPAN, hit={1, 4}, idle_share=0.5)
    assert (kept.queue_pairs_hit, kept.queue_pairs_died, kept.stall_max_ms) == (2, 1, 500.0)


def test_packets_are_kept_by_when_they_left() -> None:
    left_ms = [-300, 700, -100, 0, 900]
    delays = Delays(
        np.array([CUT_NS + ms * MS for ms in left_ms]), np.array([1_000, 12_340, 5_000_000, 20_000, 1_000])
    )
    kept = summarise(result([flow(1, first_lost=CUT_NS)]), delays, MOMENTS, SPAN, hit=set(), idle_share=0.5)
    assert kept.sent_s == [-0.1, 0.0, 0.7]
    assert kept.owd_us == [5_000.0, 20.0, 12.3]
