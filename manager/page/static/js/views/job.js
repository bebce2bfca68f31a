/** A job: who takes part, which of its pairs are slow, and what touches it. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { Details } from "../parts/details.js";
import { Findings } from "../parts/findings.js";
import { Facts, Panel } from "../parts/panel.js";
import { LinkName, Moves, QueuePairs } from "../parts/rows.js";
import { State } from "../parts/badge.js";
import { Table } from "../parts/table.js";
import { Answer } from "../parts/trouble.js";
import { Scatter } from "../pictures/scatter.js";
import { href } from "../routes.js";
import { dayBefore } from "../time.js";
import { bps, count, ns, plural, share } from "../words.js";

/** The page of the job `name`. */
export function Job({ params }) {
  const answer = useJson("job", { name: params.name });
  return html`<${Answer} of=${answer} at=${params.at}>${(job) => html`
    <${Panel} title=${job.name} note=${job.is_inferred ? "inferred: these hosts' queue pairs connect them" : ""}>
      <${Findings} of=${job.findings} empty="No finding touches it." />
      <${Facts} of=${[
        ["hosts", count(job.hosts)], ["NICs", count(job.nics)], ["queue pairs", count(job.queue_pairs)], ["rate", bps(job.bps)],
        ["slowest pair", ns(job.spread_ns)],
      ]} />
      <${Shares} of=${job.shares_with} />
    <//>
    <div class="columns even">
      <${Panel} title="Throughput over delay" note="a point for each of the slowest queue pairs"><${Scatter} of=${job.slowest} /><//>
      <${Panel} title="Members"><${Members} of=${job.members} /><//>
    </div>
    <${Panel} title="Slowest queue pairs" note="the longest one-way delay above the least first">
      <${QueuePairs} id="qps" label="Slowest queue pairs" of=${job.slowest} />
    <//>
    <${Moved} hosts=${job.members.map((member) => member.host)} at=${params.at} />`}
  <//>`;
}

/** What the planner did to queue pairs of its hosts in the day before. */
function Moved({ hosts, at }) {
  const answer = useJson("history", { what: "move", ...dayBefore(at), limit: 1000 }, { everyS: 10, ofNow: true });
  const moves = (answer.data?.rows ?? []).filter((move) => hosts.includes(move.host));
  const empty = answer.error ? answer.error.message : "the planner moved none of its queue pairs";
  return html`<${Panel} title="Moves" note="24 h"><${Moves} id="moves" of=${moves} empty=${empty} /><//>`;
}

function Shares({ of }) {
  if (!of?.length) return null;
  const columns = [
    { name: "shares with", show: (row) => html`<a href=${href("job", { name: row.job })}>${row.job}</a>`, value: (row) => row.job },
    { name: "link", show: (row) => html`<${LinkName} ...${row.link} />` },
    { name: "state", show: (row) => html`<${State} of=${row.link.state} />`, value: (row) => row.link.state },
    { name: "share", isNumber: true, show: (row) => share(row.link.share), value: (row) => row.link.share },
  ];
  const trouble = of.filter(({ link }) => !["ok", "unknown"].includes(link.state));
  return html`
    ${trouble.length > 0 && html`<${Table} id="trouble" label="Links in trouble that it shares" columns=${columns} rows=${trouble} />`}
    <${Details} id="shares" summary=${`what it shares with other jobs: ${plural(of.length, "link")}`}>
      <${Table} id="shares" label="Links that it shares with other jobs" columns=${columns} rows=${of} />
    <//>`;
}

const MEMBER = [
  { name: "host", show: (row) => html`<a href=${href("host", { name: row.host })}>${row.host}</a>`, value: (row) => row.host },
  { name: "NICs", show: (row) => row.nics.join(", ") },
  { name: "sends", isNumber: true, show: (row) => bps(row.egress_bps), value: (row) => row.egress_bps },
  { name: "receives", isNumber: true, show: (row) => bps(row.ingress_bps), value: (row) => row.ingress_bps },
];

function Members({ of }) {
  return html`<${Table} id="members" label="Members" columns=${MEMBER} rows=${of} empty="no member is known" />`;
}
