/** The tables that several pages show: links, queue pairs, jobs, events, moves. */
import { html } from "../h.js";
import { href } from "../routes.js";
import { wholeStamp } from "../time.js";
import { bps, count, ns, plural, share, spaced } from "../words.js";
import { State } from "./badge.js";
import { Table } from "./table.js";

/** What a link is called, as a link to its page. */
export function LinkName({ a, b }) {
  return html`<a href=${href("link", { a, b })}>${a} > ${b}</a>`;
}

/** What a queue pair is called: where it leaves or comes, its other end, and its number. */
export function QpName({ of }) {
  const way = of.direction === "ingress" ? "<" : ">";
  const name = `${of.host}/${of.nic} ${way} ${of.peer ?? of.peer_addr}`;
  const number = html`<span class="dim">${of.qpn}</span>`;
  if (of.direction === "ingress") return html`${name} ${number}`;
  return html`<a href=${href("qp", { host: of.host, nic: of.nic, dst_addr: of.peer_addr, qpn: of.qpn })}>${name}</a> ${number}`;
}

const LINK = [
  { name: "link", show: (row) => html`<${LinkName} ...${row} />`, value: (row) => `${row.a} > ${row.b}` },
  { name: "state", show: (row) => html`<${State} of=${row.state} />`, value: (row) => row.state },
  { name: "p50", title: "median queue", isNumber: true, show: (row) => ns(row.queue_p50_ns), value: (row) => row.queue_p50_ns },
  { name: "p99", title: "99th percentile of the queue", isNumber: true, show: (row) => ns(row.queue_p99_ns), value: (row) => row.queue_p99_ns },
  { name: "load", isNumber: true, show: (row) => bps(row.load_bps), value: (row) => row.load_bps },
  { name: "of", title: "likely capacity", isNumber: true, show: (row) => bps(row.likely_capacity_bps), value: (row) => row.likely_capacity_bps },
  { name: "share", isNumber: true, show: (row) => share(row.share), value: (row) => row.share },
  { name: "probes lost", title: "of the probes over it, lost here or elsewhere on their way", isNumber: true, show: (row) => share(row.loss), value: (row) => row.loss },
];

/** Links, each way by itself; `null` for one that is not known is left out. */
export function Links({ id, label, of, empty }) {
  return html`<${Table} id=${id} label=${label} columns=${LINK} rows=${of.filter(Boolean)} empty=${empty} />`;
}

const QP = [
  { name: "queue pair", show: (row) => html`<${QpName} of=${row} />`, value: (row) => `${row.host}/${row.nic}` },
  { name: "job", show: (row) => (row.job ? html`<a href=${href("job", { name: row.job })}>${row.job}</a>` : "–"), value: (row) => row.job },
  { name: "port", isNumber: true, show: (row) => row.sport ?? "–", value: (row) => row.sport },
  { name: "rate", isNumber: true, show: (row) => bps(row.bps), value: (row) => row.bps },
  { name: "spread", title: "longest one-way delay above the least", isNumber: true, show: (row) => ns(row.spread_ns), value: (row) => row.spread_ns },
  { name: "delay p50", isNumber: true, show: (row) => ns(row.owd?.p50_ns), value: (row) => row.owd?.p50_ns },
  { name: "p99", isNumber: true, show: (row) => ns(row.owd?.p99_ns), value: (row) => row.owd?.p99_ns },
  { name: "± bound", isNumber: true, show: (row) => ns(row.owd?.bound_ns), value: (row) => row.owd?.bound_ns },
  { name: "CE", title: "packets marked by a switch", isNumber: true, show: (row) => count(row.ce_marks), value: (row) => row.ce_marks },
  { name: "CNP", title: "congestion notifications", isNumber: true, show: (row) => count(row.cnps), value: (row) => row.cnps },
  { name: "NAK", isNumber: true, show: (row) => count(naks(row)), value: naks },
  { name: "resent", isNumber: true, show: (row) => count(row.psn_retransmitted), value: (row) => row.psn_retransmitted },
];

/** Negative acknowledgements of every kind. */
export function naks(row) {
  return row.naks ? Object.values(row.naks).reduce((sum, each) => sum + each, 0) : null;
}

/** Queue pairs, each direction by itself. */
export function QueuePairs({ id, label, of, empty = "no queue pair" }) {
  return html`<${Table} id=${id} label=${label} columns=${QP} rows=${of} empty=${empty} />`;
}

const JOB = [
  { name: "job", show: (row) => html`<a href=${href("job", { name: row.name })}>${row.name}</a>${row.is_inferred ? html` <span class="tag">inferred</span>` : ""}`, value: (row) => row.name },
  { name: "findings", isNumber: true, show: (row) => count(row.findings), value: (row) => row.findings },
  { name: "slowest pair", title: "longest one-way delay above the least", isNumber: true, show: (row) => ns(row.spread_ns), value: (row) => row.spread_ns },
  { name: "rate", isNumber: true, show: (row) => bps(row.bps), value: (row) => row.bps },
  { name: "hosts", isNumber: true, show: (row) => count(row.hosts), value: (row) => row.hosts },
  { name: "NICs", isNumber: true, show: (row) => count(row.nics), value: (row) => row.nics },
  { name: "queue pairs", isNumber: true, show: (row) => count(row.queue_pairs), value: (row) => row.queue_pairs },
];

/** Jobs. */
export function JobRows({ id, of, isShort, empty = "No queue pair connects two hosts, so no job is known." }) {
  return html`<${Table} id=${id} label="Jobs" columns=${isShort ? JOB.slice(0, 4) : JOB} rows=${of} empty=${empty} />`;
}

/** What the manager names where several hosts, or none, are meant. */
const WHOLES = ["fleet", "fabric"];

const EVENT = [
  { name: "time", show: (row) => html`<a href=${href("fleet", {}, row.time_s.toFixed(1))} title="the fabric then">${wholeStamp(row.time_s)}</a>`, value: (row) => row.time_s },
  { name: "host", show: where, value: (row) => row.host },
  { name: "event", show: (row) => spaced(row.kind), value: (row) => row.kind },
  { name: "what", isText: true, show: (row) => html`<${Detail} of=${row.detail} />${row.why ? `; why: ${row.why}` : ""}` },
];

const NAMED_LINK = /([^\s,;]*[.:/][^\s,;]*) [>-] ([^\s,;]*[.:/][^\s,;]*?)(?=[:,;]?(?:\s|$))/;

/** What an event says; the first link that it names leads to that link's page. */
function Detail({ of }) {
  const [name, a, b] = of.match(NAMED_LINK) ?? [];
  if (name === undefined) return of;
  const [before, after] = [of.slice(0, of.indexOf(name)), of.slice(of.indexOf(name) + name.length)];
  return html`${before}<a href=${href("link", { a, b })}>${name}</a>${after}`;
}

/** Where it happened: at a host, or to all of them. */
function where({ host, nic }) {
  if (!host) return "–";
  return WHOLES.includes(host) ? host : html`<a href=${href("host", { name: host })}>${host}${nic ? `/${nic}` : ""}</a>`;
}

/** Events, the newest first. */
export function Events({ id, of, empty = "nothing happened" }) {
  const rows = [...of].sort((a, b) => b.time_s - a.time_s);
  return html`<${Table} id=${id} label="Events" columns=${EVENT} rows=${rows} empty=${empty} />`;
}

const MOVE = [
  { name: "time", show: (row) => wholeStamp(row.time_s), value: (row) => row.time_s },
  { name: "queue pair", show: (row) => html`<a href=${href("qp", { host: row.host, nic: row.nic, dst_addr: row.dst_addr, qpn: row.qpn })}>${row.host}/${row.nic} > ${row.dst_addr}</a> <span class="dim">${row.qpn}</span>` },
  { name: "what", show: (row) => spaced(row.what), value: (row) => row.what },
  { name: "port before", isNumber: true, show: (row) => row.before_sport ?? "–" },
  { name: "port", isNumber: true, show: (row) => row.sport ?? "–" },
  { name: "backup port", isNumber: true, show: (row) => row.backup_sport ?? "–" },
  { name: "why", isText: true, show: (row) => row.why ?? "–" },
];

/** What the planner did to queue pairs, the newest first. */
export function Moves({ id, of, empty = "the planner moved nothing" }) {
  const rows = [...of].sort((a, b) => b.time_s - a.time_s);
  return html`<${Table} id=${id} label="Moves by the planner" columns=${MOVE} rows=${rows} empty=${empty} />`;
}

/** How many of how many are shown; nothing where all are. */
export function shownOf(rows, all, word) {
  return rows.length < all ? `${count(rows.length)} of ${plural(all, word)}` : plural(all, word);
}
