/** All jobs. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { Panel } from "../parts/panel.js";
import { JobRows } from "../parts/rows.js";
import { Answer } from "../parts/trouble.js";

/** The list of jobs; where none is known by name, hosts whose queue pairs connect them make one. */
export function Jobs({ params }) {
  const answer = useJson("job");
  return html`<${Answer} of=${answer} at=${params.at}>${(data) => html`
    <${Panel} title="Jobs" note="inferred: hosts whose queue pairs connect them make a job">
      <${JobRows} id="jobs" of=${data.jobs} />
    <//>`}
  <//>`;
}
