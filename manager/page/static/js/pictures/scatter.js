/** Throughput of queue pairs over their delay: those that lag stand apart. */
import { html } from "../h.js";
import { href } from "../routes.js";
import { bps, ns } from "../words.js";

const WIDTH = 520;
const HEIGHT = 230;
const MARGIN = { left: 84, right: 16, top: 12, bottom: 38 };

/** @param of queue pairs */
export function Scatter({ of }) {
  const known = of.filter((qp) => Number.isFinite(qp.spread_ns) && Number.isFinite(qp.bps));
  if (!known.length) return html`<p class="empty">No delay of its packets is known.</p>`;
  const x = scale(known.map((qp) => qp.spread_ns), MARGIN.left, WIDTH - MARGIN.right);
  const y = scale(known.map((qp) => qp.bps), HEIGHT - MARGIN.bottom, MARGIN.top);
  return html`<svg class="scatter" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label="Throughput of queue pairs over their delay; the table of the slowest has the values">
    ${x.ticks.map((value) => html`<g key=${value}>
      <line class="grid" x1=${x.at(value)} x2=${x.at(value)} y1=${MARGIN.top} y2=${HEIGHT - MARGIN.bottom} />
      <text class="name" x=${x.at(value)} y=${HEIGHT - MARGIN.bottom + 14} text-anchor="middle">${ns(value)}</text>
    </g>`)}
    ${y.ticks.map((value) => html`<g key=${value}>
      <line class="grid" x1=${MARGIN.left} x2=${WIDTH - MARGIN.right} y1=${y.at(value)} y2=${y.at(value)} />
      <text class="name" x=${MARGIN.left - 6} y=${y.at(value) + 4} text-anchor="end">${bps(value)}</text>
    </g>`)}
    <text class="name" x=${(MARGIN.left + WIDTH) / 2} y=${HEIGHT - 5} text-anchor="middle">delay above the least</text>
    ${known.map((qp, i) => html`<a key=${i} href=${href("qp", { host: qp.host, nic: qp.nic, dst_addr: qp.peer_addr, qpn: qp.qpn })} tabindex="-1" aria-label=${nameOf(qp)}>
      <title>${`${nameOf(qp)}: ${bps(qp.bps)}, ${ns(qp.spread_ns)}`}</title>
      <circle class="dot" cx=${x.at(qp.spread_ns)} cy=${y.at(qp.bps)} r="5" />
    </a>`)}
  </svg>`;
}

function nameOf(qp) {
  return `${qp.host}/${qp.nic} > ${qp.peer ?? qp.peer_addr}, ${qp.qpn}`;
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
