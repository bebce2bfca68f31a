/** Throughput of hosts over the delay of their slowest queue pairs: a host that lags stands apart. */
import { html } from "../h.js";
import { href } from "../routes.js";
import { bps, ns } from "../words.js";

const WIDTH = 520;
const HEIGHT = 230;
const MARGIN = { left: 84, right: 16, top: 12, bottom: 38 };

/** @param of members of a job */
export function Scatter({ of }) {
  const known = of.filter((member) => Number.isFinite(member.spread_ns) && Number.isFinite(member.egress_bps));
  if (!known.length) return html`<p class="empty">No delay of its packets is known.</p>`;
  const x = scale(known.map((member) => member.spread_ns), MARGIN.left, WIDTH - MARGIN.right);
  const y = scale(known.map((member) => member.egress_bps), HEIGHT - MARGIN.bottom, MARGIN.top);
  return html`<svg class="scatter" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label="Throughput of hosts over the delay of their slowest queue pairs; the table of members has the values">
    ${x.ticks.map((value) => html`<g key=${value}>
      <line class="grid" x1=${x.at(value)} x2=${x.at(value)} y1=${MARGIN.top} y2=${HEIGHT - MARGIN.bottom} />
      <text class="name" x=${x.at(value)} y=${HEIGHT - MARGIN.bottom + 14} text-anchor="middle">${ns(value)}</text>
    </g>`)}
    ${y.ticks.map((value) => html`<g key=${value}>
      <line class="grid" x1=${MARGIN.left} x2=${WIDTH - MARGIN.right} y1=${y.at(value)} y2=${y.at(value)} />
      <text class="name" x=${MARGIN.left - 6} y=${y.at(value) + 4} text-anchor="end">${bps(value)}</text>
    </g>`)}
    <text class="name" x=${(MARGIN.left + WIDTH) / 2} y=${HEIGHT - 5} text-anchor="middle">slowest pair, above the least delay</text>
    ${known.map((member) => html`<a key=${member.host} href=${href("host", { name: member.host })} tabindex="-1" aria-label=${member.host}>
      <title>${`${member.host}: ${bps(member.egress_bps)}, ${ns(member.spread_ns)}`}</title>
      <circle class="dot" cx=${x.at(member.spread_ns)} cy=${y.at(member.egress_bps)} r="5" />
    </a>`)}
  </svg>`;
}

function scale(values, from, to) {
  const most = Math.max(...values) * 1.1 || 1;
  const step = 10 ** Math.floor(Math.log10(most / 2));
  const by = [1, 2, 5].map((each) => each * step).find((each) => most / each <= 5) ?? 5 * step;
  return {
    at: (value) => from + ((to - from) * value) / most,
    ticks: Array.from({ length: Math.floor(most / by) + 1 }, (_, i) => i * by),
  };
}
