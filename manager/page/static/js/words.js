/** Words, symbols and units: what the manager's names and numbers are called on the page. */

/** Of each severity: its symbol and its word. */
export const SEVERITIES = {
  critical: { symbol: "◆", word: "critical" },
  warning: { symbol: "▲", word: "warning" },
  info: { symbol: "●", word: "info" },
  ok: { symbol: "✓", word: "all well" },
  unknown: { symbol: "?", word: "not known" },
};

/** Of each state of a link, a switch, a host or a clock, and of what audits say: symbol, word, and how grave it is. */
const STATES = {
  dead: ["✕", "dead", "critical"],
  silent: ["✕", "silent", "critical"],
  lossy: ["◆", "lossy", "critical"],
  flapping: ["◆", "flapping", "warning"],
  slow: ["▲", "slow", "warning"],
  slow_sender: ["▲", "slow sender", "warning"],
  slow_receiver: ["▲", "slow receiver", "warning"],
  degraded: ["▲", "degraded", "warning"],
  bit_errors: ["▲", "bit errors", "warning"],
  congested: ["▲", "congested", "info"],
  counters: ["?", "counters", "info"],
  contention: ["▲", "contention", "warning"],
  clock: ["▲", "clock", "warning"],
  suspected: ["?", "suspected", "warning"],
  avoided: ["↷", "avoided", "info"],
  full: ["■", "full", "info"],
  ok: ["✓", "ok", "ok"],
  unknown: ["?", "not known", "unknown"],
  up: ["✓", "up", "ok"],
  lost: ["✕", "lost", "critical"],
  synced: ["✓", "synced", "ok"],
  holdover: ["▲", "holdover", "warning"],
  unsynced: ["?", "unsynced", "unknown"],
  set_aside: ["◆", "set aside", "critical"],
  fail: ["✕", "fail", "critical"],
  outlier: ["◆", "outlier", "critical"],
  warn: ["▲", "warn", "warning"],
  divided: ["▲", "divided", "warning"],
  waived: ["●", "waived", "info"],
  pass: ["✓", "pass", "ok"],
};

/** What audits say, the gravest first. */
export const VERDICTS = ["fail", "outlier", "unknown", "warn", "divided", "waived"];

/** Symbol, word and severity of a state; of one that this page does not know, its name. */
export function stateWords(state) {
  const [symbol, word, severity] = STATES[state] ?? ["?", spaced(state ?? "unknown"), "unknown"];
  return { symbol, word, severity };
}

/** The page's own notices, which no manager can send. */
export const CONNECTIONS = {
  no_manager: { severity: "critical", text: "No manager: the stream is broken. What is shown may be old; it connects again by itself." },
  stale: { severity: "warning", text: "Stale: no word from the manager for 5 s. What is shown may be old." },
};

/** `link_silent_over` as `link silent over`. */
export function spaced(name) {
  return String(name).replaceAll("_", " ");
}

const NOT_KNOWN = "–";

function isKnown(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}

function scaled(value, steps, digits = 3) {
  const size = Math.abs(value);
  const [unit, by] = steps.find(([, from]) => size >= from * 0.9995) ?? steps.at(-1);
  const number = value / by;
  return `${short(number, digits)} ${unit}`;
}

function short(number, digits) {
  if (number === 0) return "0";
  const before = Math.max(1, Math.floor(Math.log10(Math.abs(number))) + 1);
  return number.toFixed(Math.max(0, Math.min(2, digits - before)));
}

/** A delay: `850 ns`, `12.3 µs`, `1.35 ms`. */
export function ns(value) {
  if (!isKnown(value)) return NOT_KNOWN;
  if (Math.abs(value) < 1000) return `${Math.round(value)} ns`;
  return scaled(value, [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]);
}

/** A rate: `9.98 Mbit/s`, `392 Gbit/s`. */
export function bps(value) {
  if (!isKnown(value)) return NOT_KNOWN;
  return scaled(value, [["Tbit/s", 1e12], ["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3], ["bit/s", 1]]);
}

/** A share: `0 %`, `0.05 %`, `12 %`. */
export function share(value) {
  if (!isKnown(value)) return NOT_KNOWN;
  const percent = value * 100;
  if (percent === 0) return "0 %";
  if (percent < 0.01) return "<0.01 %";
  return `${percent.toFixed(percent < 1 ? 2 : percent < 10 ? 1 : 0)} %`;
}

/** A count: `12 345`. */
export function count(value) {
  return isKnown(value) ? Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f") : NOT_KNOWN;
}

/** `1 host`, `3 hosts`. */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** Drift and discipline: `-46.1 ppm`, `12 ppb`. */
export function ppb(value) {
  if (!isKnown(value)) return NOT_KNOWN;
  return Math.abs(value) >= 1000 ? `${short(value / 1000, 3)} ppm` : `${Math.round(value)} ppb`;
}

/** What a heat map or a series shows: its title, what it means, and how a value is written. */
export const METRICS = {
  spread: { title: "Queueing", meaning: "99th percentile of one-way delay less the least", format: ns },
  p50: { title: "Delay", meaning: "median one-way delay", format: ns },
  loss: { title: "Loss", meaning: "share of probes lost", format: share },
  load: { title: "Load", meaning: "what queue pairs send", format: bps },
};

/** What a place is called: `l1-s2 > l2`, `h1/nic0 > 10.2.0.1, 4711`. */
export function placeWords(place) {
  if (place.page === "link") return `${place.a} > ${place.b}`;
  if (place.page === "qp") return `${place.host}/${place.nic} > ${place.dst_addr}, ${place.qpn}`;
  if (place.page === "leaf" && place.peer) return `${place.name} > ${place.peer}`;
  return place.name ?? spaced(place.page);
}
