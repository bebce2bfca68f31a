"""The picture of a recording: goodput above, one-way delay below, on one time axis. Pure."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from tools.picture.document import Arm, Recording
from tools.picture.svg import Axis, Panel, line, rectangle, text

WIDTH, HEIGHT = 860, 412
LEFT, RIGHT, MARGIN = 62, 838, 16
GOODPUT_TOP, GOODPUT_BOTTOM = 66, 190
DELAY_TOP, DELAY_BOTTOM = 228, 352
GAP = 8
"""Between a panel and the words above it, and before words beside a line."""

MOST_SHARE = 1.4
LEAST_US, MOST_US = 3.0, 200_000.0
DELAY_TICKS = ((10.0, "10 µs"), (100.0, "100 µs"), (1e3, "1 ms"), (1e4, "10 ms"), (1e5, "100 ms"))
TICK_S = 0.5
US_PER_MS = 1e3
QUEUED_US = US_PER_MS
"""Packets that wait for no other take tens of microseconds."""

NAMES = {"ecmp": "ECMP alone:", "cwdp": "With cwdp:"}

SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
    'role="img" aria-labelledby="title told">'
)
STYLE = """<style>
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",Arial,sans-serif;fill:#24292f}
.title{font-size:16px;font-weight:600}
.bold{font-weight:600}
.on{paint-order:stroke;stroke:#f0f2f5;stroke-width:4px;stroke-linejoin:round}
.mute{font-size:12px;fill:#57606a}
.end{text-anchor:end}
.middle{text-anchor:middle}
.card{fill:#fff;stroke:#d0d7de;rx:6px}
.silent{fill:#f0f2f5}
.grid{stroke:#d8dee4}
.moment{stroke:#24292f;stroke-dasharray:4 3}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.dots{fill:none;stroke-width:2.2;stroke-linecap:round;stroke-opacity:.55}
path.ecmp{stroke:#d55e00}
path.cwdp{stroke:#0072b2}
text.ecmp{fill:#b34f00}
text.cwdp{fill:#0072b2}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
.mute{fill:#9198a1}
.card{fill:#0d1117;stroke:#30363d}
.dots{stroke-opacity:.75}
.silent{fill:#1a212a}
.on{stroke:#1a212a}
.grid{stroke:#30363d}
.moment{stroke:#e6edf3}
path.ecmp{stroke:#e8772e}
path.cwdp{stroke:#56b4e9}
text.ecmp{fill:#f0883e}
text.cwdp{fill:#56b4e9}
}
</style>"""


def draw(recording: Recording) -> str:
    """The SVG."""
    first_s, bin_s = recording.first_s, recording.bin_s
    edges = [first_s + number * bin_s for number in range(len(recording.cwdp.goodput_bps) + 1)]
    time = Axis(edges[0], edges[-1], LEFT, RIGHT)
    goodput = Panel(time, Axis(0, MOST_SHARE, GOODPUT_BOTTOM, GOODPUT_TOP))
    delay = Panel(time, Axis(LEAST_US, MOST_US, DELAY_BOTTOM, DELAY_TOP, log=True))
    arms = {"ecmp": recording.ecmp, "cwdp": recording.cwdp}
    parts = [
        *_opening(recording),
        rectangle((0.5, 0.5), (WIDTH - 0.5, HEIGHT - 0.5), "card"),
        text((MARGIN, 28), _title(recording), "title"),
        *(_silence(panel, _mended_s(recording)) for panel in (goodput, delay)),
        *goodput.rows((share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)),
        *delay.rows(DELAY_TICKS),
        *(
            goodput.steps(edges, [rate / recording.offered_bps for rate in arm.goodput_bps], kind)
            for kind, arm in arms.items()
        ),
        *(delay.dots(zip(arm.sent_s, arm.owd_us, strict=True), kind) for kind, arm in arms.items()),
        *_moments((goodput, delay), _mended_s(recording)),
        *_goodput_words(recording, goodput),
        *_delay_words(recording, delay),
        *_foot(recording, time),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _opening(recording: Recording) -> list[str]:
    before_s, mended_s = -recording.first_s, _mended_s(recording)
    told = (
        f"Two charts over time, from {before_s:g} seconds before a link goes silent; {mended_s:.1f} seconds after it the "
        f"link is mended. In the end goodput with ECMP alone is {_share_at_end(recording, recording.ecmp):.0%} of what "
        f"is offered, with cwdp {_share_at_end(recording, recording.cwdp):.0%}. "
        f"ECMP alone: {_died(recording)} {_waits(recording)} With cwdp: {_survived(recording)} "
        f"One-way delay: {_waits_not(recording)}"
    )
    return [
        SVG,
        f'<title id="title">{escape(_title(recording))}</title>',
        f'<desc id="told">{escape(told)}</desc>',
        STYLE,
    ]


def _title(recording: Recording) -> str:
    return f"A link goes silent under load: {recording.queue_pairs} RoCEv2 queue pairs, with cwdp and without"


def _mended_s(recording: Recording) -> float:
    """By when the link was mended in both runs."""
    return max(recording.ecmp.mended_s, recording.cwdp.mended_s)


def _silence(panel: Panel, mended_s: float) -> str:
    """The time for which the link was silent, as a ground."""
    start, end = panel.x.at(0), panel.x.at(mended_s)
    return rectangle((start, panel.y.end), (end, panel.y.start), "silent")


def _moments(panels: Sequence[Panel], mended_s: float) -> list[str]:
    drawn = []
    for at_s, words in ((0.0, "the link goes silent"), (mended_s, "it is mended")):
        x = panels[0].x.at(at_s)
        drawn += [line((x, panel.y.end), (x, panel.y.start), "moment") for panel in panels]
        drawn.append(text((x + GAP, panels[0].y.start - GAP), words, "bold"))
    return drawn


def _goodput_words(recording: Recording, panel: Panel) -> list[str]:
    return [
        text((MARGIN, panel.y.end - GAP), "Goodput of all queue pairs, of what they offer", "mute"),
        _label(panel, 1.17, "cwdp", _survived(recording)),
        _label(panel, 0.36, "ecmp", _died(recording)),
    ]


def _delay_words(recording: Recording, panel: Panel) -> list[str]:
    words = "One-way delay of data packets, as cwdp measures it; each dot is one packet"
    return [
        text((MARGIN, panel.y.end - GAP), words, "mute"),
        _label(panel, 2500, "ecmp", _waits(recording)),
        _label(panel, 200, "cwdp", _waits_not(recording)),
    ]


def _label(panel: Panel, value: float, kind: str, words: str) -> str:
    """A run's name and what is to be said of it, just after the cut at the height of a value."""
    place = panel.x.at(0.0) + GAP, panel.y.at(value) + 4
    return text(place, words, f"on {kind}", NAMES[kind])


def _foot(recording: Recording, time: Axis) -> list[str]:
    ticks = np.arange(np.ceil(time.low / TICK_S), np.floor(time.high / TICK_S + 1e-9) + 1) * TICK_S
    lab = (
        f"A lab in network namespaces: {recording.hosts} hosts, {recording.leaves} leaves, {recording.spines} spines, "
        f"links of {_mbit(recording.rate_bps)}, between switches {_mbit(recording.spine_rate_bps)}; "
        f"seed {recording.seed}; Linux {recording.kernel}; {recording.recorded}"
    )
    return [
        *(text((time.at(tick), DELAY_BOTTOM + 17), _seconds(tick), "mute middle") for tick in ticks.tolist()),
        text((MARGIN, HEIGHT - 14), lab, "mute"),
    ]


def _seconds(value: float) -> str:
    return f"{value:g} s".replace("-", "\N{MINUS SIGN}")


def _mbit(rate_bps: int) -> str:
    return f"{rate_bps / 1e6:g} Mbit/s"


def _survived(recording: Recording) -> str:
    arm = recording.cwdp
    died = f"{arm.queue_pairs_died} died" if arm.queue_pairs_died else "none died"
    return f"{arm.queue_pairs_hit} queue pairs hit: at most {arm.stall_max_ms:.0f} ms still, {died}."


def _died(recording: Recording) -> str:
    arm = recording.ecmp
    died = "all" if arm.queue_pairs_died == arm.queue_pairs_hit else str(arm.queue_pairs_died)
    return f"{arm.queue_pairs_hit} queue pairs hit: {died} timed out and died."


def _waits(recording: Recording) -> str:
    sent_s, queued = np.array(recording.ecmp.sent_s), np.array(recording.ecmp.owd_us) >= QUEUED_US
    before, after = (float(queued[those].mean()) for those in (sent_s < 0.0, sent_s >= 0.0))
    return f"{before:.0%} of the packets queue before, {after:.0%} after."


def _waits_not(recording: Recording) -> str:
    middle, high = (_delay(np.quantile(recording.cwdp.owd_us, share)) for share in (0.5, 0.99))
    return f"median {middle}, 99th percentile {high}."


def _delay(delay_us: float) -> str:
    return f"{delay_us:.0f} µs" if delay_us < US_PER_MS else f"{delay_us / US_PER_MS:.2g} ms"


def _share_at_end(recording: Recording, arm: Arm) -> float:
    """Goodput in the last second, of what is offered."""
    last = round(1.0 / recording.bin_s)
    return float(np.mean(arm.goodput_bps[-last:])) / recording.offered_bps
