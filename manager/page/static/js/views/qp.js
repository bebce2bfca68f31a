/** A queue pair: its path and the queues on it, what its packets took, what was done about it. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { Steps } from "../parts/act.js";
import { Findings } from "../parts/findings.js";
import { Facts, Panel } from "../parts/panel.js";
import { Events, Links, Moves, naks } from "../parts/rows.js";
import { Table } from "../parts/table.js";
import { Answer } from "../parts/trouble.js";
import { Hops } from "../pictures/hops.js";
import { href, placeHref } from "../routes.js";
import { duration } from "../time.js";
import { bps, count, ns, plural, spaced } from "../words.js";

/** The page of the queue pair that `host`, `nic`, `dst_addr` and `qpn` name. */
export function Qp({ params }) {
  const { host, nic, dst_addr, qpn } = params;
  const answer = useJson("qp-view", { host, nic, dst_addr, qpn });
  return html`<${Answer} of=${answer} at=${params.at}>${(view) => html`
    <${Panel} title=${`${host}/${nic} > ${view.queue_pair.peer ?? dst_addr}, QPN ${qpn}`} tools=${view.back && html`<a href=${placeHref(view.back)}>the other way</a>`}>
      <${Findings} of=${view.findings} empty="No finding touches its path." />
      <${Steps} of=${view.act} findings=${view.findings} />
      <${Identity} of=${view} />
    <//>
    <${Panel} title="Path" note=${pathWords(view)}><${Path} of=${view} /><//>
    <div class="columns even">
      <${Panel} title="Delay of its data packets" note="one way, NIC to NIC"><${Delay} of=${view} /><//>
      <${Panel} title="Counters"><${Counters} of=${view.queue_pair} /><//>
    </div>
    <${Panel} title="Moves"><${Moves} id="moves" of=${view.moves} empty="the planner did not touch it" /><//>
    <${Panel} title="What happened on its path"><${Events} id="events" of=${view.events} /><//>`}
  <//>`;
}

function Identity({ of }) {
  const qp = of.queue_pair;
  const job = of.job ? html`<a href=${href("job", { name: of.job.name ?? of.job })}>${of.job.name ?? of.job}</a>` : "not known";
  return html`<${Facts} of=${[
    ["job", job],
    ["process", of.process ? processWords(of.process) : "not known"],
    ["host", html`<a href=${href("host", { name: qp.host })}>${qp.host}</a>`],
    ["to", `${qp.peer_addr}${qp.peer ? ` (${qp.peer})` : ""}`],
    ["source port", qp.sport],
    ["moved by", movedBy(qp.actuator)],
    ["slice", qp.slice || "none"],
    ["rate", bps(qp.bps)],
    ["paced to", qp.paced_bps ? bps(qp.paced_bps) : "not paced"],
    ["last packet", qp.age_s === undefined || qp.age_s === null ? undefined : `${duration(qp.age_s)} ago`],
  ]} />`;
}

function processWords({ pid, name, job }) {
  return [pid, name && `(${name})`, job && `of ${job}`].filter(Boolean).join(" ");
}

function movedBy(actuator) {
  return { tc: "the dataplane", mlx5dv: "mlx5dv", bnxt: "bnxt_re", sqd: "draining it first", create_only: "nothing, once it is connected", apm: "automatic path migration" }[actuator];
}

function pathWords({ path, ways }) {
  const port = path?.sport ? `source port ${path.sport}` : "";
  return [port, ways ? plural(ways, "known path") : ""].filter(Boolean).join(", ");
}

function Path({ of }) {
  const { path, backup } = of;
  if (!path?.hops.length) return html`<p class="empty">Its path is not known: it has not been traced yet.</p>`;
  return html`
    ${!path.is_known && html`<p class="note">The path of this port is not wholly known.</p>`}
    <${Hops} hops=${path.hops} label="Path, hop by hop" />
    <${Links} id="hops" label="Hops" of=${path.hops} />
    <h3>Backup${backup ? `, source port ${backup.sport}` : ""}</h3>
    ${backup?.hops.length ? html`<${Hops} hops=${backup.hops} label="Backup path, hop by hop" isDashed /><${Links} id="backup" label="Hops of the backup" of=${backup.hops} />` : html`<p class="empty">It has none.</p>`}`;
}

function Delay({ of }) {
  const { owd } = of.queue_pair;
  if (!owd) return html`<p class="empty">None of its packets was stamped at both ends in the last 30 s.</p>`;
  return html`<${Facts} of=${[
    ["least", ns(owd.min_ns)],
    ["p50", ns(owd.p50_ns)],
    ["p99", ns(owd.p99_ns)],
    ["longest", ns(owd.max_ns)],
    ["± bound", ns(owd.bound_ns ?? of.clock_bound_ns)],
    ["samples", count(owd.samples)],
  ]} />
  ${of.clock_bound_ns !== null && html`<p class="note">The two clocks together are right within ${ns(of.clock_bound_ns)}.</p>`}`;
}

function Counters({ of }) {
  const rows = [
    ["packets", of.packets],
    ["bytes", of.bytes],
    ["CE marks", of.ce_marks],
    ["CNPs", of.cnps],
    ["NAKs", naks(of)],
    ...Object.entries(of.naks ?? {}).filter(([, number]) => number).map(([name, number]) => [`NAK, ${spaced(name)}`, number]),
    ["resent", of.psn_retransmitted],
    ["missed", of.psn_gaps],
    ["reordered", of.psn_reordered],
  ];
  const columns = [
    { name: "counter", show: ([name]) => name },
    { name: "total", isNumber: true, show: ([, number]) => count(number) },
  ];
  return html`<${Table} id="counters" label="Counters" columns=${columns} rows=${rows} />`;
}
