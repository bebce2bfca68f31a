"""A job in a window as a trace in Chrome's JSON format, which Perfetto opens: `/v1/trace` in, text out. Pure.

`ts` and `dur` are microseconds. They are written from whole nanoseconds with three decimals, so no floating-point number comes
between, and count from the window's beginning, so that readers that take them for floating-point numbers lose nothing either.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import count, pairwise
from typing import Any

from cwdp.cli import tables
from cwdp.shared.bus.collectives import WAITS

Json = Mapping[str, Any]

_FIRST, _LAST = -1, 1
"""How tracks that are not of a NIC are sorted."""


class _Tracks:
    """Numbers for processes and threads, each once, and what they are called."""

    def __init__(self) -> None:
        self._next = count(1)
        self._pids: dict[str, int] = {}
        self.named: list[str] = []

    def process(self, name: str, place: int = 0) -> int:
        """The number of a process."""
        if name not in self._pids:
            pid = self._pids[name] = next(self._next)
            self.named.append(_event("M", None, pid=pid, name="process_name", args={"name": name}))
            sort = {"sort_index": place}
            self.named.append(_event("M", None, pid=pid, name="process_sort_index", args=sort))
        return self._pids[name]

    def thread(self, pid: int, name: str) -> dict[str, int]:
        """A new thread of a process."""
        ids = {"pid": pid, "tid": next(self._next)}
        self.named.append(_event("M", None, **ids, name="thread_name", args={"name": name}))
        return ids


def chrome_trace(answer: Json) -> Iterator[str]:
    """The trace, in pieces of text.

    Args:
        answer: of `/v1/trace`.
    """
    tracks = _Tracks()
    events = [*_job(answer, tracks), *_queue_pairs(answer, tracks)]
    events += [*_ranks(answer, tracks), *_delays(answer, tracks), *_queues(answer, tracks)]
    yield '{"displayTimeUnit":"ns","otherData":'
    yield json.dumps(_about(answer))
    yield ',"traceEvents":[\n'
    timed = (text for _, _, text in sorted(events, key=lambda event: event[:2]))
    for i, text in enumerate([*tracks.named, *timed]):
        yield text if i == 0 else f",\n{text}"
    yield "\n]}\n"


_Timed = tuple[int, int, str]
"""An event: when it begins, from the window's beginning, less how long it takes, as text; so parents come first."""


def _job(answer: Json, tracks: _Tracks) -> Iterator[_Timed]:
    """Iterations, when their length changed, and what the job sends."""
    pid, since_ns = tracks.process(f"job {answer['job']}", _FIRST), answer["since_ns"]
    iterations = tracks.thread(pid, "iterations")
    for number, (start_ns, end_ns) in enumerate(pairwise(answer["starts_ns"]), 1):
        yield _slice(start_ns - since_ns, end_ns - start_ns, **iterations, name=f"iteration {number}")
    for change in answer["changes"]:
        args = {"before_ns": change["before_ns"], "after_ns": change["after_ns"]}
        at_ns = change["at_ns"] - since_ns
        name = f"{tables.duration(args['before_ns'])} to {tables.duration(args['after_ns'])}"
        yield at_ns, 0, _event("i", at_ns, **iterations, name=name, s="t", args=args)
    every_ns, before = answer["throughput"]["every_ns"], None
    for i, bps in enumerate(answer["throughput"]["bps"]):
        if bps is not None and bps != before:
            yield _counter(i * every_ns, pid, "sends", {"bit/s": bps})
            before = bps


def _queue_pairs(answer: Json, tracks: _Tracks) -> Iterator[_Timed]:
    """At each NIC a track for each queue pair that it sends by or is sent to by."""
    ends = [
        (nic, way, peer, each)
        for each in answer["queue_pairs"]
        for nic, way, peer in ((each["src"], "sent", each["dst"]), (each["dst"], "came", each["src"]))
    ]
    for nic, way, peer, each in sorted(ends, key=lambda end: (_in_order(end[0]), end[1] == "came")):
        if not each[way]:
            continue
        pid = tracks.process(nic)
        thread = tracks.thread(pid, f"{'to' if way == 'sent' else 'from'} {peer}, QPN {each['qpn']}")
        told = {"peer": peer, "qpn": each["qpn"], "direction": way}
        bursts = [dict(zip(answer["burst"], burst, strict=True)) for burst in each[way]]
        for burst, after in zip(bursts, [*bursts[1:], None], strict=True):
            yield _burst(burst, after, answer["since_ns"], thread, told)


def _burst(burst: Json, after: Json | None, since_ns: int, thread: Json, told: Json) -> _Timed:
    """A burst, from the window's beginning on at most, and to the next one's: ends are known to a jiffy."""
    start_ns = max(burst["start_ns"], since_ns)
    end_ns = burst["end_ns"] if after is None else min(burst["end_ns"], max(start_ns, after["start_ns"]))
    args = {name: value for name, value in burst.items() if name not in ("start_ns", "end_ns")}
    if start_ns > burst["start_ns"]:
        args["began_before_ns"] = start_ns - burst["start_ns"]
    name = f"{tables.quantity(burst['bytes'])}B"
    return _slice(start_ns - since_ns, end_ns - start_ns, **thread, name=name, args={**told, **args})


def _ranks(answer: Json, tracks: _Tracks) -> Iterator[_Timed]:
    """Of each rank its calls, by communicator, and their chunks, by peer and direction, with what each waited for."""
    rows = _Rows(tracks, answer["since_ns"], answer["until_ns"])
    calls = [(call, rank) for call in answer["calls"] for rank in call["ranks"]]
    for call, rank in sorted(calls, key=lambda each: (_in_order(each[1]["host"]), each[1]["start_ns"])):
        pid = tracks.process(f"rank {rank['rank']}, {rank['host']}, process {rank['pid']}")
        span = rank["start_ns"], rank["end_ns"]
        row = rows.free(pid, f"calls of {call['comm_name'] or call['comm_id']}", span)
        about = {name: call[name] for name in ("comm_id", "comm_name", "seq", "bytes")}
        about |= {name: rank[name] for name in ("enqueued_ns", "is_over", "is_enqueued")}
        name = f"{call['function']} {call['seq']}, {tables.quantity(call['bytes'])}B"
        yield from rows.slice(row, span, name, about)
        for numbers in rank["chunks"]:
            yield from _chunk(dict(zip(answer["chunk"], numbers, strict=True)), pid, rows)


def _chunk(chunk: dict[str, Any], pid: int, rows: "_Rows") -> Iterator[_Timed]:
    begin_ns = chunk.pop("begin_ns")
    waits = [(name, chunk.pop(f"{name}_ns")) for name in WAITS]
    span = begin_ns, begin_ns + sum(lasts_ns for _, lasts_ns in waits)
    way = "to" if chunk.pop("is_send") else "from"
    row = rows.free(pid, f"{way} rank {chunk['peer']}, channel {chunk['channel']}", span)
    yield from rows.slice(row, span, f"{tables.quantity(chunk['bytes'])}B", chunk)
    for name, lasts_ns in waits:
        if lasts_ns:
            yield from rows.slice(row, (begin_ns, begin_ns + lasts_ns), name, {})
        begin_ns += lasts_ns


_Span = tuple[int, int]
"""When something begins and ends, on the timeline."""


class _Rows:
    """Threads for what may overlap: there is one more of a name where something begins before what is in the others has ended."""

    def __init__(self, tracks: _Tracks, since_ns: int, until_ns: int) -> None:
        self._tracks, self._since_ns, self._until_ns = tracks, since_ns, until_ns
        self._rows: dict[tuple[int, str], list[tuple[int, dict[str, int]]]] = {}

    def free(self, pid: int, name: str, span: _Span) -> dict[str, int]:
        """The first thread of a name in which nothing ends later than this begins."""
        rows = self._rows.setdefault((pid, name), [])
        place = next((i for i, (end_ns, _) in enumerate(rows) if end_ns <= span[0]), len(rows))
        thread = rows[place][1] if place < len(rows) else self._tracks.thread(pid, name)
        rows[place : place + 1] = [(span[1], thread)]
        return thread

    def slice(self, thread: Json, span: _Span, name: str, args: Json) -> Iterator[_Timed]:
        """What lies in the window of something; nothing where none of it does."""
        start_ns, end_ns = max(span[0], self._since_ns), span[1]
        if start_ns <= min(end_ns, self._until_ns):
            before = {"began_before_ns": start_ns - span[0]} if start_ns > span[0] else {}
            yield _slice(
                start_ns - self._since_ns, end_ns - start_ns, **thread, name=name, args={**args, **before}
            )


def _delays(answer: Json, tracks: _Tracks) -> Iterator[_Timed]:
    """One-way delays, at the NIC that sends: of data packets by queue pair, of probes by the NIC that they go to."""
    since_ns = answer["since_ns"]
    for each in answer["delays"]:
        pid, name = tracks.process(each["src"]), f"delay of data to {each['dst']}, QPN {each['qpn']}"
        for time_ns, owd_ns in zip(each["time_ns"], each["owd_ns"], strict=True):
            yield _counter(time_ns - since_ns, pid, name, {"ns": owd_ns})
    for each in answer["probes"]:
        pid, name = tracks.process(each["src"]), f"delay of probes to {each['dst']}, {each['paths']} paths"
        for start_ns, *values in zip(each["start_ns"], each["mean_ns"], each["max_ns"], strict=True):
            if None not in values:
                args = dict(zip(("mean ns", "longest path ns"), values, strict=True))
                yield _counter(start_ns - since_ns, pid, name, args)


def _queues(answer: Json, tracks: _Tracks) -> Iterator[_Timed]:
    """Queues of links, each a counter."""
    for each in answer["queues"]:
        pid, name = tracks.process("fabric", _LAST), f"queue {each['a']} > {each['b']}"
        for start_ns, queue_ns in zip(each["start_ns"], each["queue_ns"], strict=True):
            if queue_ns is not None:
                yield _counter(start_ns - answer["since_ns"], pid, name, {"ns": queue_ns})


def _about(answer: Json) -> dict[str, Any]:
    """What a reader of the file may want to know; times of the timeline as text, as many programs keep 53 bits only."""
    return {
        "job": answer["job"],
        "timeline_since_ns": str(answer["since_ns"]),
        "timeline_until_ns": str(answer["until_ns"]),
        "bursts_whole_since_ns": str(answer["whole_since_ns"]),
        "left_out": answer["left_out"],
    }


def left_out(answer: Json) -> str | None:
    """What the answer lacks, in words; None for nothing."""
    lacks = [
        f"{number} {words[what]}"
        for what, number in answer["left_out"].items()
        if number and what in (words := _LEFT_OUT)
    ]
    missing_ns = answer["whole_since_ns"] - answer["since_ns"]
    if missing_ns > 0:
        lacks.append(f"bursts of the first {tables.duration(missing_ns)}, of which not all are kept")
    return ", ".join(lacks) or None


_LEFT_OUT = {
    "queue_pairs": "queue pairs, those that send least",
    "bursts": "bursts of these",
    "nic_pairs": "pairs of NICs without delays",
    "links": "links without queues",
    "chunks": "chunks of calls",
}


def _slice(at_ns: int, lasts_ns: int, **fields: Any) -> _Timed:
    return at_ns, -lasts_ns, _event("X", at_ns, lasts_ns, **fields)


def _counter(at_ns: int, pid: int, name: str, args: Json) -> _Timed:
    return at_ns, 0, _event("C", at_ns, pid=pid, name=name, args=args)


def _event(kind: str, at_ns: int | None, lasts_ns: int | None = None, **fields: Any) -> str:
    times = "".join(
        f',"{key}":{ns // 1000}.{ns % 1000:03}'
        for key, ns in (("ts", at_ns), ("dur", lasts_ns))
        if ns is not None
    )
    return f'{{"ph":"{kind}"{times},{json.dumps(fields)[1:]}'


def _in_order(nic: str) -> list[tuple[bool, int | str]]:
    """Sorts h2 before h10."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else part) for part in re.split(r"(\d+)", nic)]
