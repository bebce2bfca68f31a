/** A host: its NICs, its agent, its clock, its queue pairs, its counters. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { State } from "../parts/badge.js";
import { Facts, Panel } from "../parts/panel.js";
import { Events, QueuePairs } from "../parts/rows.js";
import { Table } from "../parts/table.js";
import { Answer, Trouble } from "../parts/trouble.js";
import { href } from "../routes.js";
import { ago, dayBefore, duration } from "../time.js";
import { count, spaced } from "../words.js";

/** The page of the host `name`. */
export function Host({ params }) {
  const { name } = params;
  const answer = useJson("host", { name }, { ofNow: true });
  const qps = useJson("qp", { host: name, limit: 2 * ROWS }, { ofNow: true });
  const events = useJson("events", { host: name, ...dayBefore(params.at), limit: 100 }, { ofNow: true, everyS: 5 });
  return html`<${Answer} of=${answer}>${(data) => {
    const [host] = data.hosts;
    if (!host) return html`<${Trouble} title=${`No host is called ${name}.`} hint="Look for it by / above." />`;
    return html`
      <${Panel} title=${host.host} note=${`seen ${duration(host.last_seen_s)} ago`} tools=${html`<a href=${href("events", { host: name })}>all its events</a>`}>
        ${params.at !== undefined && html`<p class="note">This is the host as it is now: history keeps its events.</p>`}
        <p class="about"><${State} of=${host.state} /> clock: <${State} of=${host.clock_state} /></p>
        <${LastAudit} host=${name} />
        <${Facts} of=${[
          ["version", host.version], ["dataplane", host.dataplane_tag], ["boot id", host.boot_id], ["restarts", host.restarts],
          ["desired version", host.desired_version], ["key ids", host.key_ids?.join(", ")],
        ]} />
        <${Table} id="nics" label="NICs" columns=${NIC} rows=${host.nics} empty="it has told of no NIC" />
      <//>
      <${Panel} title="Queue pairs" note="the fastest that it sends by">
        <${Answer} of=${qps} isPart>${(found) => html`<${QueuePairs} id="qps" label="Queue pairs" of=${sent(found)} />`}<//>
      <//>
      <${Panel} title="What happened" note="24 h"><${Answer} of=${events} isPart>${(found) => html`<${Events} id="events" of=${found.events} />`}<//><//>
      <${Counters} of=${host.counters ?? {}} />`;
  }}<//>`;
}

/** What the last audit came to for it; nothing where there is none. */
function LastAudit({ host }) {
  const { data } = useJson("audit/verdict", { host, short: 1 }, { ofNow: true, everyS: 10 });
  if (!data?.number) return null;
  return html`<p class="about"><a href=${href("audit", { number: data.number, host })}>audit ${data.number}</a>: <${State} of=${data.verdict} /> ${data.said}; ${ago(data.ended_s)}</p>`;
}

/** Those by which it sends: each way of a queue pair is told by itself, and the other is the far end's. */
function sent(found) {
  return found.queue_pairs.filter((row) => row.direction === "egress").slice(0, ROWS);
}

const ROWS = 50;

const NIC = [
  { name: "NIC", show: (row) => row.ifname, value: (row) => row.ifname },
  { name: "address", show: (row) => [row.ipv4, row.ipv6].filter(Boolean).join(" ") || "–" },
  { name: "carrier", show: (row) => (row.carrier ? "yes" : "no"), value: (row) => Number(row.carrier) },
  { name: "mode", show: (row) => row.mode, value: (row) => row.mode },
  { name: "transport", show: (row) => row.transport, value: (row) => row.transport },
  { name: "probed", show: (row) => (row.reason === "ok" ? html`<${State} of="ok" />` : spaced(row.reason)), value: (row) => row.reason },
];

const COUNTER = [
  { name: "counter", show: ([name]) => name, value: ([name]) => name },
  { name: "total", isNumber: true, show: ([, number]) => count(number), value: ([, number]) => number },
];

function Counters({ of }) {
  const rows = Object.entries(of).filter(([, number]) => number);
  return html`<${Panel} title="Counters" note="those that are not 0"><${Table} id="counters" label="Counters" columns=${COUNTER} rows=${rows} empty="all are 0" /><//>`;
}
