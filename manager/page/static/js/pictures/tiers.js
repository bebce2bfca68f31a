/** The fabric as columns of tiers: boxes for switches and groups, lines for links. */
import { html, useRef } from "../h.js";
import { href, route } from "../routes.js";
import { useWidth } from "../width.js";
import { plural, stateWords } from "../words.js";
import { COLOURS, bounds, classOf } from "./classes.js";

const BOX = { wide: 200, narrow: 132, height: 36, gap: 9 };
const NARROW = 560;
const LETTER = 7.4;
const BETWEEN = { least: 80, most: 360 };
const TOP = 30;
const WORST_LAST = ["ok", "unknown", "full", "avoided", "suspected"];

/**
 * @param map of `/v1/map`
 * @param by `queue` or `load`: what colours links
 * @param open ids of groups that are shown one by one
 */
export function Tiers({ map, by, open }) {
  const box = useRef();
  const room = useWidth(box);
  const size = room < NARROW ? BOX.narrow : BOX.wide;
  const between = spread(room, size, map.tiers.length);
  const places = layout(map.tiers, size + between);
  const height = TOP + Math.max(...map.tiers.map((tier) => tier.groups.length)) * (BOX.height + BOX.gap) + 8;
  const width = map.tiers.length * size + (map.tiers.length - 1) * between + 2;
  const links = [...map.links].sort((one, other) => rank(one) - rank(other));
  return html`<div ref=${box} class="scroll tall" role="group" aria-label="Map of the fabric" tabindex="0">
    <svg class="tiers" viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="group" aria-label="Tiers of the fabric as columns">
      ${map.tiers.map((tier, i) => html`<text key=${tier.tier} class="head" x=${i * (size + between)} y="16">tier ${tier.tier}${tier.tier === 1 ? ", leaves" : ""}</text>`)}
      ${links.map((link) => html`<${Line} key=${`${link.a} ${link.b}`} of=${link} from=${places.get(link.a)} to=${places.get(link.b)} size=${size} by=${by} />`)}
      ${map.tiers.flatMap((tier) => tier.groups.map((group) => html`<${Box} key=${group.id} of=${group} tier=${tier.tier} place=${places.get(group.id)} size=${size} open=${open} />`))}
    </svg>
  </div>`;
}

/** How far tiers stand apart, so that they fill the width. */
function spread(width, size, tiers) {
  const free = (width - 2 - tiers * size) / Math.max(1, tiers - 1);
  return Math.max(BETWEEN.least, Math.min(BETWEEN.most, Math.floor(free)));
}

function layout(tiers, step) {
  const places = new Map();
  const tallest = Math.max(...tiers.map((tier) => tier.groups.length));
  tiers.forEach((tier, i) => {
    const free = ((tallest - tier.groups.length) * (BOX.height + BOX.gap)) / (tier.groups.length + 1);
    tier.groups.forEach((group, row) => {
      places.set(group.id, { x: 1 + i * step, y: TOP + free * (row + 1) + row * (BOX.height + BOX.gap) });
    });
  });
  return places;
}

function rank(link) {
  const calm = WORST_LAST.indexOf(link.state);
  return calm < 0 ? WORST_LAST.length : calm;
}

function Line({ of, from, to, size, by }) {
  if (!from || !to) return null;
  const [left, right] = from.x < to.x ? [from, to] : [to, from];
  const x1 = left.x + size;
  const y1 = left.y + BOX.height / 2;
  const x2 = right.x;
  const y2 = right.y + BOX.height / 2;
  const middle = (x1 + x2) / 2;
  const curve = `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
  const { symbol, word, severity } = stateWords(of.state);
  const at = by === "load" ? classOf(of.share, bounds("share")) : classOf(of.queue_p99_ns, bounds("queue"));
  const what = `${of.worst.a} – ${of.worst.b}${of.count > 1 ? `, the worst of ${of.count}` : ""}: ${word}`;
  const isCalm = severity === "ok" || severity === "unknown";
  const width = isCalm ? 1.2 + 0.8 * Math.max(0, at) : 3.2;
  const dash = { critical: "5 5", warning: "9 4", info: "2 4" }[severity];
  const part = 0.28 + 0.44 * (((left.y * 7 + right.y * 13) % 100) / 100);
  const [mx, my] = along(part, [x1, y1], [x2, y2]);
  return html`<a class="line" href=${href("link", of.worst)} tabindex="-1" aria-label=${what}>
    <title>${what}</title>
    <path class="hit" d=${curve} />
    <path class="edge" d=${curve} stroke-width=${width + 1.4} />
    <path d=${curve} fill="none" stroke=${isCalm ? (at < 0 ? "var(--hatch)" : COLOURS[at]) : `var(--${severity})`} stroke-width=${width} stroke-dasharray=${dash} />
    ${!isCalm && html`<g transform=${`translate(${mx} ${my})`}><rect class="plate" x="-38" y="-9" width="76" height="18" rx="9" /><text class=${`mark ${severity}`} y="4" text-anchor="middle">${symbol} ${word}</text></g>`}
  </a>`;
}

/** A point of the curve between two boxes. */
function along(part, [x1, y1], [x2, y2]) {
  const left = 1 - part;
  const weights = [left ** 3, 3 * left ** 2 * part, 3 * left * part ** 2, part ** 3];
  const sum = (values) => values.reduce((total, value, i) => total + value * weights[i], 0);
  return [sum([x1, (x1 + x2) / 2, (x1 + x2) / 2, x2]), sum([y1, y1, y2, y2])];
}

function Box({ of, tier, place, size, open }) {
  const { symbol, word, severity } = stateWords(of.state);
  const address = addressOf(of, tier, open);
  const about = of.switch === null ? plural(of.members, tier === 1 ? "leaf" : "switch").replace("leafs", "leaves").replace("switchs", "switches") : of.answers ? "" : "does not answer";
  const isTight = size < BOX.wide && severity !== "ok";
  const text = html`
    <title>${[of.label, ...(of.names ?? [])].join("\n")}</title>
    <rect class=${`box ${severity}`} width=${size} height=${BOX.height} rx="4" />
    <text class="label" x="9" y="15">${cut(of.label, size)}</text>
    <text class="name" x="9" y="29">${isTight ? "" : [about, of.nics ? plural(of.nics, "NIC") : ""].filter(Boolean).join(", ")}</text>
    <text class=${`mark ${severity}`} x=${size - 8} y="29" text-anchor="end">${severity === "ok" ? "" : `${symbol} ${word}`}</text>`;
  const transform = `translate(${place.x} ${place.y})`;
  if (!address) return html`<g transform=${transform}>${text}</g>`;
  return html`<a href=${address} transform=${transform} >${text}</a>`;
}

function addressOf(group, tier, open) {
  if (group.switch === null) return href("map", { ...route.value.params, open: [...open, group.id].join(",") });
  return tier === 1 ? href("leaf", { name: group.switch }) : null;
}

function cut(name, size) {
  const most = Math.floor((size - 16) / LETTER);
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}
