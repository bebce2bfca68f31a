/** A job that sends in bursts: its iterations, what it sends and how long its packets take on one time axis, who is late. */
import { useJson } from "../api.js";
import { html, useMemo } from "../h.js";
import { Details } from "../parts/details.js";
import { Facts, Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Answer } from "../parts/trouble.js";
import { Bars } from "../pictures/bars.js";
import { Series } from "../pictures/series.js";
import { href } from "../routes.js";
import { wholeStamp } from "../time.js";
import { bps, count, ns, share } from "../words.js";

/** The page of the job that `cwdp job` calls `name`. */
export function Iterations({ params }) {
  const asked = { job: params.name };
  const ask = (path) => useJson(path, asked, { everyS: 5, ofNow: true });
  const known = ask("iterations");
  const series = ask("job-series");
  const causes = ask("causes");
  return html`<${Answer} of=${known} at=${params.at}>${({ jobs: [job] }) => html`
    <${Panel} title=${job.name} note=${sureWords(job)} tools=${!job.is_inferred && html`<a href=${href("job", { name: job.name })}>its queue pairs and links</a>`}>
      ${params.at !== undefined && html`<p class="note">This is the job as it is now: history keeps no iterations.</p>`}
      <${Facts} of=${[
        ["NICs", count(job.nics)], ["queue pairs, one way", count(job.queue_pairs)], ["sends as", job.kinds.join(", ") || null],
        ["an iteration, mean", ns(job.period_ns)], ["the last one", ns(job.last_iteration_ns)], ["waits for", waitsFor(job)],
      ]} />
    <//>
    <${Panel} title="Over time" note=${`the last ${ns(job.window_ns)}`}>
      <${Answer} of=${series} isPart>${(data) => html`<${Charts} of=${data} causes=${causes.data?.causes ?? []} />`}<//>
    <//>
    <${Panel} title="Members by lateness" note="of an iteration, later than others in the same role; the median"><${Lateness} of=${job.ranks} /><//>`}
  <//>`;
}

/** How sure it is that this is one job, and whence that is known. */
export function sureWords(job) {
  return job.is_inferred ? `inferred from its bursts, sure to ${share(job.confidence)}` : "as its processes tell";
}

/** Who makes the others wait, the latest by name. */
export function waitsFor({ stragglers: [first, ...others] }) {
  if (!first) return "nobody";
  return `${first.nic}, ${ns(first.late_ns)}${others.length ? ` and ${others.length} more` : ""}`;
}

function Charts({ of, causes }) {
  const { iterations, from_s: times } = of;
  const marks = useMemo(() => marksOf(of.changes, causes), [of, causes]);
  const markers = useMemo(() => marks.map((mark) => mark.at_s), [marks]);
  const lasted = useMemo(() => [{ label: "iteration", values: iterations.duration_ns, ink: "--there" }], [of]);
  const sends = useMemo(() => [{ label: "sends", values: of.bps, ink: "--there" }], [of]);
  const delays = useMemo(() => [
    { label: "data, longest", values: of.owd_max_ns, ink: "--back", isDots: true },
    { label: "data, median", values: of.owd_p50_ns, ink: "--there", isDots: true },
    { label: "probes, mean", values: of.probe_owd_ns, ink: "--faint" },
  ], [of]);
  const span = [times[0], times.at(-1) + of.lasts_s];
  return html`<div class="charts stacked">
    <${Series} id="iterations" label="How long iterations take, by when they began" times=${iterations.start_s} lines=${lasted} format=${ns} least=${1e6} markers=${markers} span=${span} empty="It has no rhythm that could be told: at least seven iterations in 300 s are needed." />
    <${Series} id="sends" label="Throughput" times=${times} lines=${sends} format=${bps} least=${1e6} markers=${markers} span=${span} />
    <${Series} id="delays" label="One-way delay" times=${times} lines=${delays} format=${ns} least=${10e3} markers=${markers} span=${span} />
  </div>
  <h3>What changed</h3>
  <${Table} id="marks" label="What changed" columns=${MARK} rows=${marks} empty="neither a change of the iterations nor a cause is known" />`;
}

/** Changes of the period and causes, in order: what the markers in the charts stand for. */
function marksOf(changes, causes) {
  return [
    ...changes.map((change) => ({ at_s: change.at_s, kind: "iterations changed", text: `from ${ns(change.before_ns)} to ${ns(change.after_ns)} each` })),
    ...causes.map((cause) => ({ at_s: cause.start_s, kind: cause.kind, text: textOf(cause) })),
  ].sort((a, b) => a.at_s - b.at_s);
}

function textOf(cause) {
  const costs = cause.costs_ns > 0 ? [`costs ${ns(cause.costs_ns)} an iteration`] : [];
  return [cause.subject, ...costs, ...cause.evidence].join("; ");
}

const MARK = [
  { name: "time", show: (row) => wholeStamp(row.at_s), value: (row) => row.at_s },
  { name: "what", show: (row) => row.kind, value: (row) => row.kind },
  { name: "in words", isText: true, show: (row) => row.text },
];

const RANK = [
  { name: "NIC", show: (row) => html`<a href=${href("host", { name: hostOf(row.nic) })}>${row.nic}</a>`, value: (row) => row.nic },
  { name: "late", isNumber: true, show: (row) => ns(row.late_ns), value: (row) => row.late_ns },
  { name: "others wait for it", show: (row) => (row.straggler ? "▲ yes" : "no"), value: (row) => Number(row.straggler) },
  { name: "bytes", title: "sent in the time that is looked at", isNumber: true, show: (row) => count(row.bytes), value: (row) => row.bytes },
];

function hostOf(nic) {
  return nic.slice(0, nic.lastIndexOf("/"));
}

function Lateness({ of }) {
  const told = of.filter((rank) => rank.late_ns !== null).map((rank) => ({ name: rank.nic, value: rank.late_ns, isLate: rank.straggler }));
  return html`
    ${told.length
      ? html`<${Bars} label="How late each NIC is; the table has the values" rows=${told} format=${ns} />`
      : html`<p class="empty">How late each is cannot be told: there is no rhythm, or they tell too little.</p>`}
    <${Details} id="ranks" summary="as a table"><${Table} id="ranks" label="Members by lateness" columns=${RANK} rows=${of} /><//>`;
}
