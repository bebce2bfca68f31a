"""The same calls with the shim and without: the same results, and but for labels and LIDs the same calls at the provider."""

from collections.abc import Iterator
from random import Random

import pytest
from shim_programs import LABEL, TABLE
from test_rdma_shim_lids import HERE, THERE, lid_table

from tools.shim import Built, Call, FakeAgent, Program
from tools.shim.program import AV, ERR, GID, INIT, RESET, RTR, RTS, SQD

CALLS = 300
OWN_LABEL = 77
NEXT = {RESET: INIT, INIT: RTR, RTR: RTS, RTS: SQD, SQD: RTS, ERR: RESET}
ERRORS = (22, 95, 5, 110, 12)
"""Of devices: of the label or not."""


def _change(random: Random, place: int, state: int) -> Iterator[str]:
    """A call that may be right, or anything, and may fail at the device for as long as it lasts."""
    to = NEXT[state] if random.random() < 0.8 else random.choice(["-", RESET, INIT, RTR, RTS, SQD, 5, ERR, 9])
    likely = 0.95 if to == RTR else 0.1
    to_gid = random.choice([GID, GID, bytes(16)]).hex()
    path = f" path={to_gid} dlid={THERE[0]}" if random.random() < likely else ""
    more = random.choice(["", "", "", f" label={OWN_LABEL}", " gid=9", " local=1"])
    fails = random.random() < 0.15
    if fails:
        yield f"fail {random.choice(ERRORS)} 0 9"
    yield f"modify {place} {to}{path}{more}"
    if fails:
        yield "fail 0 0 0"


class _Script:
    """Calls at random, by what the calls before gave."""

    def __init__(self, seed: int, device: str) -> None:
        self._random = Random(seed)
        self._states: dict[int, int] = {}
        self.lines = [f"open {device}_0", f"open {device}_1"]
        self.answers: list[list[int]] = []
        self.calls: list[Call] = []

    def run(self, program: Program) -> None:
        for line in self.lines:
            self._do(program, line)
        for _ in range(CALLS):
            for line in self._some():
                self.lines.append(line)
                self._do(program, line)

    def _do(self, program: Program, line: str) -> None:
        self.answers.append(program.do(line))
        self.calls += program.calls()
        verb, *words = line.split()
        if verb == "create" and self.answers[-1][0] >= 0:
            self._states[self.answers[-1][0]] = RESET
        if verb == "query":
            self._states[int(words[0])] = self.answers[-1][1]
        if verb == "destroy":
            del self._states[int(words[0])]

    def _some(self) -> Iterator[str]:
        random = self._random
        if not self._states or random.random() < 0.1:
            kind, wrs = random.choice(["rc", "rc", "uc", "ud"]), random.choice([1, 1, 1, 5000])
            yield f"create {random.randrange(2)} {kind} {wrs}"
            return
        place = random.choice(list(self._states))
        if random.random() < 0.05:
            yield f"destroy {place}"
            return
        if random.random() < 0.2:
            parts = " ".join(
                random.choice(["1", "65536", "!7", "/ 0"]) for _ in range(random.randrange(1, 40))
            )
            yield f"post {place} {random.randrange(16)} {parts}"
            return
        yield from _change(random, place, self._states[place])
        yield f"query {place}"


def without_labels(calls: list[Call]) -> list[Call]:
    """Calls but for LIDs, and for labels that are not the program's own, and without those that the shim made once more."""
    found: list[Call] = []
    for call in calls:
        label = call.flow_label if call.flow_label == OWN_LABEL else 0
        dlid = THERE[0] if call.mask & AV and call.dlid else call.dlid
        bare = call._replace(flow_label=label, dlid=dlid, path_bits=0)
        is_again = call.state == RTR and call.mask & AV and call.result and found[-1:] == [bare]
        found += [] if is_again else [bare]
    return found


def played(program: Program, lines: list[str]) -> tuple[list[list[int]], list[Call]]:
    """Answers, those to queries without the label, and calls."""
    answers, calls = [], []
    for line in lines:
        answers.append(_bare(line, program.do(line)))
        calls += program.calls()
    return answers, calls


def _bare(line: str, answer: list[int]) -> list[int]:
    return answer[:3] if line.startswith("query") else answer


@pytest.mark.parametrize("agent_is", ["there", "silent", "absent"])
@pytest.mark.parametrize("device", ["fake", "ib"])
@pytest.mark.parametrize("seed", range(8))
def test_the_same_calls_have_the_same_results(
    built: Built, agent: FakeAgent, seed: int, device: str, agent_is: str
) -> None:
    script = _Script(seed, device)
    lids = {"FAKE_LID": str(HERE[0]), "FAKE_LMC": str(HERE[1]), "FAKE_APM": "1"}
    with Program(built.linked, built, lids) as bare:
        script.run(bare)
    wanted = [_bare(line, answer) for line, answer in zip(script.lines, script.answers, strict=True)]
    assert {call.state for call in script.calls if not call.result} >= {RESET, INIT, RTR, RTS, SQD, ERR}
    assert len([call for call in script.calls if call.result]) > 10
    path = agent.path if agent_is != "absent" else agent.path.with_name("nobody")
    shim = {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": str(path)}
    with Program(built.linked, built, shim | lids) as program:
        program.tell(script.lines[0])
        if agent_is == "there":
            peer = agent.accept()
            peer.give(TABLE if device == "fake" else lid_table())
            peer.settle()
        assert program.answer() == ["open", *(str(number) for number in wanted[0])]
        program.calls()
        answers, calls = played(program, script.lines[1:])
        assert program.end() == (0, "")
    assert answers == wanted[1:]
    assert without_labels(calls) == without_labels(script.calls[1:])
    is_given = any(call.flow_label == LABEL or call.path_bits for call in calls)
    assert is_given == (agent_is == "there")
