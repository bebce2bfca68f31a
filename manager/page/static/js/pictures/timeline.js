/** Events as marks on lanes of time, counted by bins, so that a thousand of them stay readable. */
import { cursor } from "../cursor.js";
import { html, useRef } from "../h.js";
import { href } from "../routes.js";
import { useStore } from "../store.js";
import { clock, day, stamp } from "../time.js";
import { useWidth } from "../width.js";
import { plural } from "../words.js";

const LANES = [
  ["faults", /^(link|switch|nic|host|slow|direction)_(?!up$)|^host_lost|^slow_/],
  ["paths", /^path_|^steer_|^qp_|^detour_|^incast_|^paths_/],
  ["clocks", /^clock_/],
  ["service", /./],
];
const BINS = 72;
const DAY_S = 86400;
const LEFT = 52;
const LANE = 22;
const TICK = 90;

/** Which lane an event is on. */
export function laneOf(kind) {
  return LANES.findIndex(([, pattern]) => pattern.test(kind));
}

/** @param events the events; @param sinceS and @param untilS the span that is shown */
export function Timeline({ events, sinceS, untilS }) {
  const pointed = useStore(cursor);
  const binS = (untilS - sinceS) / BINS;
  const box = useRef();
  const width = Math.max(useWidth(box), 2 * LEFT);
  const x = (timeS) => LEFT + ((timeS - sinceS) / (untilS - sinceS)) * (width - LEFT);
  const height = LANES.length * LANE + 20;
  const bins = binned(events, sinceS, binS);
  return html`<div ref=${box}><svg class="timeline" viewBox=${`0 0 ${width} ${height}`} height=${height} role="group" aria-label=${`${plural(events.length, "event")} from ${stamp(sinceS)} to ${stamp(untilS)}, by kind`}>
    ${LANES.map(([name], lane) => html`<g key=${name}>
      <text class="name" x="0" y=${lane * LANE + 15}>${name}</text>
      <line class="grid" x1=${LEFT} x2=${width} y1=${(lane + 1) * LANE} y2=${(lane + 1) * LANE} />
    </g>`)}
    ${bins.map((bin) => html`<${Bin} key=${`${bin.lane} ${bin.number}`} of=${bin} x=${x} sinceS=${sinceS} binS=${binS} />`)}
    ${ticks(sinceS, untilS, width / TICK).map((timeS) => html`<g key=${timeS}>
      <line class="grid" x1=${x(timeS)} x2=${x(timeS)} y1="0" y2=${LANES.length * LANE + 4} />
      <text class="name" x=${x(timeS)} y=${height - 3} text-anchor="middle">${untilS - sinceS > 2 * DAY_S ? day(timeS).slice(5) : clock(timeS).slice(0, 5)}</text>
    </g>`)}
    ${pointed !== null && pointed >= sinceS && pointed <= untilS && html`<line class="cursor" x1=${x(pointed)} x2=${x(pointed)} y1="0" y2=${LANES.length * LANE} />`}
  </svg></div>`;
}

function Bin({ of, x, sinceS, binS }) {
  const fromS = sinceS + of.number * binS;
  const tall = Math.min(LANE - 6, 5 + 3 * Math.log2(of.events.length));
  const address = href("events", { since: fromS.toFixed(1), until: (fromS + binS).toFixed(1) });
  const what = `${plural(of.events.length, "event")} at ${clock(fromS)}: ${[...new Set(of.events.map((event) => event.kind))].slice(0, 4).join(", ")}`;
  return html`<a href=${address} tabindex="-1" aria-label=${what}>
    <title>${what}</title>
    <rect class=${`bin lane${of.lane}`} x=${x(fromS) + 0.5} width=${Math.max(3, x(fromS + binS) - x(fromS) - 1)} y=${(of.lane + 1) * LANE - tall} height=${tall} />
  </a>`;
}

function binned(events, sinceS, binS) {
  const bins = new Map();
  for (const event of events) {
    const number = Math.floor((event.time_s - sinceS) / binS);
    if (number < 0 || number >= BINS) continue;
    const lane = laneOf(event.kind);
    const key = lane * BINS + number;
    if (!bins.has(key)) bins.set(key, { lane, number, events: [] });
    bins.get(key).events.push(event);
  }
  return [...bins.values()];
}

function ticks(sinceS, untilS, most) {
  const stepS = [60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800].find((step) => (untilS - sinceS) / step <= most) ?? 604800;
  const first = Math.ceil((sinceS + stepS / 4) / stepS) * stepS;
  return Array.from({ length: Math.max(0, Math.floor((untilS - stepS / 4 - first) / stepS) + 1) }, (_, i) => first + i * stepS);
}
