/** All jobs. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { Panel } from "../parts/panel.js";
import { JobRows } from "../parts/rows.js";
import { Table } from "../parts/table.js";
import { Answer } from "../parts/trouble.js";
import { href } from "../routes.js";
import { count, ns, share } from "../words.js";
import { waitsFor } from "./iterations.js";

/** The lists of jobs: by when queue pairs send, and by whom they connect where none is known by name. */
export function Jobs({ params }) {
  const answer = useJson("job");
  return html`<${Answer} of=${answer} at=${params.at}>${(data) => html`
    <${InBursts} isPast=${params.at !== undefined} />
    <${Panel} title="Jobs" note="inferred: hosts whose queue pairs connect them make a job">
      <${JobRows} id="jobs" of=${data.jobs} />
    <//>`}
  <//>`;
}

const JOB = [
  { name: "job", show: (row) => html`<a href=${href("iterations", { name: row.name })}>${row.name}</a>`, value: (row) => row.name },
  { name: "waits for", show: (row) => (row.stragglers.length ? `▲ ${waitsFor(row)}` : "nobody"), value: (row) => row.stragglers[0]?.late_ns },
  { name: "iteration", title: "the mean of 30 s (of long ones 300 s), or since it changed", isNumber: true, show: (row) => ns(row.period_ns), value: (row) => row.period_ns },
  { name: "last", title: "the last iteration", isNumber: true, show: (row) => ns(row.last_iteration_ns), value: (row) => row.last_iteration_ns },
  { name: "sends as", show: (row) => row.kinds.join(", ") || "–", value: (row) => row.kinds.join() },
  { name: "NICs", isNumber: true, show: (row) => count(row.nics), value: (row) => row.nics },
  { name: "queue pairs", title: "one way", isNumber: true, show: (row) => count(row.queue_pairs), value: (row) => row.queue_pairs },
  { name: "sure", title: "that it is one job", isNumber: true, show: (row) => (row.is_inferred ? share(row.confidence) : "told"), value: (row) => row.confidence },
];

/** Jobs that send in bursts, as training does. */
function InBursts({ isPast }) {
  const answer = useJson("iterations", {}, { ofNow: true });
  return html`<${Panel} title="Jobs that send in bursts" note=${isPast ? "as they are now: history keeps no iterations" : "by when their queue pairs send, in the last 30 s, where iterations are long 300 s"}>
    <${Answer} of=${answer} isPart>${(data) => html`<${Table} id="bursts" label="Jobs that send in bursts" columns=${JOB} rows=${data.jobs} empty="No job sends in bursts." />`}<//>
  <//>`;
}
