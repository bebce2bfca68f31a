/** A path as it is crossed, hop by hop: nodes, and between them links as thick and coloured as their queues. */
import { html } from "../h.js";
import { href } from "../routes.js";
import { bps, ns, stateWords } from "../words.js";
import { COLOURS, bounds, classOf } from "./classes.js";

const STEP = 168;
const MARGIN = 64;

/** @param hops links in the order of travel; @param label what it is the path of; @param isDashed for one that is not taken */
export function Hops({ hops, label, isDashed }) {
  const width = MARGIN * 2 + STEP * hops.length;
  const nodes = [hops[0].a, ...hops.map((hop) => hop.b)];
  return html`<div class="scroll" role="group" aria-label=${label} tabindex="0">
    <svg class="hops" viewBox=${`0 0 ${width} 92`} width=${width} height="92" role="group" aria-label=${label}>
      ${hops.map((hop, i) => html`<${Hop} key=${i} of=${hop} x=${MARGIN + i * STEP} isDashed=${isDashed} />`)}
      ${nodes.map((name, i) => html`<g key=${i} transform=${`translate(${MARGIN + i * STEP} 46)`}>
        <title>${name}</title>
        <circle class="node" r="7" />
        <text class="name" y="28" text-anchor="middle">${cut(name)}</text>
      </g>`)}
    </svg>
  </div>`;
}

function Hop({ of, x, isDashed }) {
  const at = classOf(of.queue_p99_ns, bounds("queue"));
  const { symbol, word, severity } = stateWords(of.state);
  const isBroken = isDashed || ["dead", "silent", "avoided", "suspected"].includes(of.state);
  return html`<a href=${href("link", { a: of.a, b: of.b })}>
    <title>${`${of.a} > ${of.b}`}</title>
    <line class="edge" x1=${x} x2=${x + STEP} y1="46" y2="46" stroke-width=${at < 0 ? 4 : 6 + 2 * at} />
    <line x1=${x} x2=${x + STEP} y1="46" y2="46" stroke=${at < 0 ? "var(--hatch)" : COLOURS[at]} stroke-width=${at < 0 ? 2 : 4 + 2 * at} stroke-dasharray=${isBroken ? "8 5" : undefined} />
    <text class="value" x=${x + STEP / 2} y="20" text-anchor="middle">p99 ${ns(of.queue_p99_ns)}</text>
    <text class="name" x=${x + STEP / 2} y="33" text-anchor="middle">${bps(of.load_bps)}</text>
    ${severity !== "ok" && html`<text class=${`mark ${severity}`} x=${x + STEP / 2} y="66" text-anchor="middle">${symbol} ${word}</text>`}
  </a>`;
}

function cut(name) {
  return name.length > 22 ? `${name.slice(0, 21)}…` : name;
}
