/** Clocks: offsets, how far they can be trusted, what disciplines them, who is set aside and why. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { State } from "../parts/badge.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Answer } from "../parts/trouble.js";
import { href } from "../routes.js";
import { duration } from "../time.js";
import { ns, ppb, spaced } from "../words.js";

const ROWS = 500;
const STATES = ["set_aside", "unsynced", "holdover", "synced"];

/** The page of all clocks; `host` chooses by part of the name. */
export function Clocks({ params }) {
  const answer = useJson("clock", {}, { ofNow: true });
  return html`<${Answer} of=${answer}>${(data) => html`
    <${Panel} title="Clocks" note=${`timeline ${String(data.timeline).slice(0, 8)}`} tools=${html`<a href=${href("events", { kind: "clock_set_aside,clock_changed,clock_unsynced" })}>events of clocks</a>`}>
      ${params.at !== undefined && html`<p class="note">These are the clocks as they are now: history keeps what happened to them as events.</p>`}
      ${data.allowance_ns > 0 && html`<p class="note">Every bound holds ${ns(data.allowance_ns)} for what is not seen yet.</p>`}
      <${Rows} of=${data.hosts} />
    <//>`}
  <//>`;
}

function Rows({ of }) {
  const rows = [...of].sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) || (b.bound_ns ?? 0) - (a.bound_ns ?? 0));
  return html`
    <${Table} id="clocks" label="Clocks" columns=${CLOCK} rows=${rows.slice(0, ROWS)} empty="No host has reported its clock yet." />
    ${rows.length > ROWS && html`<p class="note">${ROWS} of ${rows.length} clocks, those in trouble first. In a terminal: <code>cwdp clock</code></p>`}`;
}

const CLOCK = [
  { name: "host", show: (row) => html`<a href=${href("host", { name: row.host })}>${row.host}</a>`, value: (row) => row.host },
  { name: "state", show: (row) => html`<${State} of=${row.state} />`, value: (row) => row.state },
  { name: "offset", isNumber: true, show: (row) => seconds(row.offset_ns), value: (row) => row.offset_ns },
  { name: "drift", isNumber: true, show: (row) => ppb(row.drift_ppb), value: (row) => row.drift_ppb },
  { name: "± bound", isNumber: true, show: (row) => ns(row.bound_ns), value: (row) => row.bound_ns },
  { name: "edges", title: "fits believed, of all", isNumber: true, show: (row) => `${row.edges_used}/${row.edges_used + row.edges_rejected}`, value: (row) => row.edges_used },
  { name: "residual p99", isNumber: true, show: (row) => ns(row.residual_p99_ns), value: (row) => row.residual_p99_ns },
  { name: "discipline", show: discipline, value: (row) => row.discipline_ppb },
  { name: "why", isText: true, show: why },
];

function seconds(offsetNs) {
  return offsetNs === null ? "–" : `${offsetNs < 0 ? "−" : "+"}${(Math.abs(offsetNs) / 1e9).toFixed(9)} s`;
}

function discipline(row) {
  if (row.discipline_ppb === null) return row.discipline_source === "none" ? "not readable" : "–";
  const changed = row.discipline_changed_s === null ? "steady" : `${row.discipline_changes}×, ${duration(row.discipline_changed_s)} ago`;
  return `${ppb(row.discipline_ppb)}, ${changed}`;
}

function why(row) {
  const changed = row.clock_changed_s === null ? null : `changed ${duration(row.clock_changed_s)} ago, being found anew`;
  return [row.cause, changed, row.widened && `bound is wide: ${spaced(row.widened)}`].filter(Boolean).join("; ") || "";
}
