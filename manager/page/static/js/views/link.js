/** A link, both ways: queues, load, loss over time, and what crosses it. */
import { useJson } from "../api.js";
import { html, useMemo } from "../h.js";
import { Steps } from "../parts/act.js";
import { State } from "../parts/badge.js";
import { Findings } from "../parts/findings.js";
import { Choices, Panel } from "../parts/panel.js";
import { Events, JobRows, Links, QueuePairs, shownOf } from "../parts/rows.js";
import { Answer } from "../parts/trouble.js";
import { Series } from "../pictures/series.js";
import { href } from "../routes.js";
import { instant } from "../time.js";
import { bps, ns, share } from "../words.js";

const SPANS = { "15m": 900, "1h": 3600, "24h": 86400, "14d": 1209600 };

/** The page of the link from `a` to `b`, with the way back beside it. */
export function Link({ params }) {
  const { a, b } = params;
  const answer = useJson("link-view", { a, b });
  return html`<${Answer} of=${answer} at=${params.at}>${(link) => html`
    <${Panel} title=${`${a} > ${b}`} tools=${html`<a href=${href("link", { a: b, b: a })}>the other way</a>`}>
      <p class="about"><${State} of=${link.there.state} />${link.is_avoided && html` <${State} of="avoided" /> <span>queue pairs are kept off it</span>`}</p>
      <${Findings} of=${link.findings} empty="Nothing is wrong with it." />
      <${Steps} of=${link.act} findings=${link.findings} />
      <${Links} id="ways" label="Both ways" of=${[link.there, link.back]} />
    <//>
    <${History} params=${params} of=${link} />
    <${Panel} title="Queue pairs that cross it" note=${shownOf(link.queue_pairs, link.queue_pair_count, "queue pair")}>
      <${QueuePairs} id="qps" label="Queue pairs that cross it" of=${link.queue_pairs} />
    <//>
    <${Panel} title="Jobs that cross it"><${JobRows} id="jobs" of=${link.jobs} empty="no job crosses it" /><//>
    <${Panel} title="What happened to it" note="24 h"><${Events} id="events" of=${link.events} /><//>`}
  <//>`;
}

function History({ params, of }) {
  const span = SPANS[params.span] ? params.span : "1h";
  const { a, b } = params;
  const until = params.at === undefined ? null : Math.min(instant(params.at) + SPANS[span] / 4, Date.now() / 1000).toFixed(0);
  const since = params.at === undefined ? -SPANS[span] : (Number(until) - SPANS[span]).toFixed(0);
  const ask = (from, to) => useJson("series", { of: "link", a: from, b: to, since, until }, { everyS: 10, ofNow: true });
  const there = ask(a, b);
  const back = ask(b, a);
  const choices = html`<${Choices} label="How far back" chosen=${span} options=${Object.keys(SPANS).map((name) => [name, name])}
    address=${(name) => href("link", { ...params, span: name })} />`;
  return html`<${Panel} title="Over time" note=${there.data ? `one value every ${there.data.lasts_s} s` : ""} tools=${choices}>
    <${Answer} of=${there} isPart>${(data) => html`<${Charts} there=${data} back=${back.data} of=${of} />`}<//>
  <//>`;
}

function Charts({ there, back, of }) {
  const markers = useMemo(() => of.events.map((event) => event.time_s), [of.events]);
  const aligned = useMemo(() => (back ? alignedTo(there.from_s, back) : {}), [there, back]);
  const lines = (field, name) => [
    { label: name, values: there[field], ink: "--there" },
    ...(aligned[field] ? [{ label: `${name}, back`, values: aligned[field], ink: "--back", dash: [6, 3] }] : []),
  ];
  const queues = useMemo(() => [...lines("queue_p99_ns", "p99"), { label: "p50", values: there.queue_p50_ns, ink: "--faint", dash: [2, 2] }], [there, aligned]);
  const capacity = of.there.likely_capacity_bps;
  const loads = useMemo(() => [...lines("load_bps", "load"), ...(capacity ? [{ label: "capacity", values: there.from_s.map(() => capacity), ink: "--faint", dash: [2, 4] }] : [])], [there, aligned, capacity]);
  const losses = useMemo(() => lines("loss", "loss"), [there, aligned]);
  const times = there.from_s;
  return html`<div class="charts">
    <${Series} id="queues" label="Queue" times=${times} lines=${queues} format=${ns} least=${10e3} markers=${markers} />
    <${Series} id="loads" label="Load against capacity" times=${times} lines=${loads} format=${bps} least=${1e6} markers=${markers} />
    <${Series} id="losses" label="Probes over it lost" times=${times} lines=${losses} format=${share} least=${0.01} markers=${markers} />
  </div>`;
}

/** The columns of a series at other times; null where it has none. */
function alignedTo(times, series) {
  const placeOf = new Map(series.from_s.map((timeS, i) => [timeS, i]));
  const pick = (values) => times.map((timeS) => values[placeOf.get(timeS)] ?? null);
  return Object.fromEntries(["queue_p99_ns", "load_bps", "loss"].filter((field) => series[field]).map((field) => [field, pick(series[field])]));
}
