/** One bar for each of some names, from zero to either side; those that stand out have a symbol besides their colour. */
import { html, useRef } from "../h.js";
import { useWidth } from "../width.js";

const ROW = 22;
const VALUE = 92;
const MOST = 40;

/**
 * @param label what the picture shows
 * @param rows each `{name, value, isLate}`, in order; the first 40 are drawn
 * @param format how a value is written
 */
export function Bars({ label, rows, format }) {
  const box = useRef();
  const width = Math.max(useWidth(box), 260);
  const shown = rows.slice(0, MOST);
  const names = Math.min(180, width / 3);
  const [least, most] = [Math.min(0, ...shown.map((row) => row.value)), Math.max(0, ...shown.map((row) => row.value))];
  const room = width - names - 2 * VALUE;
  const x = (value) => names + VALUE + (room * (value - least)) / (most - least || 1);
  const height = shown.length * ROW + 4;
  return html`<div ref=${box}><svg class="bars" viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="img" aria-label=${label}>
    ${shown.map((row, i) => html`<${Bar} key=${row.name} of=${row} y=${i * ROW} x=${x} names=${names} format=${format} />`)}
    <line class="zero" x1=${x(0)} x2=${x(0)} y1="0" y2=${height} />
  </svg></div>
  ${rows.length > MOST && html`<p class="note">The first ${MOST} of ${rows.length}; the table has all.</p>`}`;
}

function Bar({ of, y, x, names, format }) {
  const [from, to] = [Math.min(x(0), x(of.value)), Math.max(x(0), x(of.value))];
  const isLeft = of.value < 0;
  return html`<g class=${of.isLate ? "late" : ""}>
    <title>${`${of.name}: ${format(of.value)}`}</title>
    <svg x="0" y=${y} width=${names} height=${ROW}><text class="name" x="0" y="15">${of.name}</text></svg>
    <rect x=${from} y=${y + 4} width=${Math.max(1, to - from)} height=${ROW - 8} />
    <text class="value" x=${isLeft ? from - 6 : to + 6} y=${y + 15} text-anchor=${isLeft ? "end" : "start"}>${of.isLate ? "▲ " : ""}${format(of.value)}</text>
  </g>`;
}
