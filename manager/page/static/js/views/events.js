/** Everything that happened, searchable. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { Filter } from "../parts/filter.js";
import { Panel } from "../parts/panel.js";
import { Events as EventRows } from "../parts/rows.js";
import { Answer } from "../parts/trouble.js";
import { Timeline } from "../pictures/timeline.js";
import { change, href } from "../routes.js";
import { instant, stamp } from "../time.js";
import { plural } from "../words.js";

const LIMIT = 1000;
const SPANS = [["-900", "15 min"], ["-3600", "1 h"], ["-86400", "24 h"], ["-604800", "7 d"], ["-7776000", "90 d"]];

/** The log; `since`, `until`, `kind` (several by commas) and `host` are the manager's filters, `text` is looked for here. */
export function Events({ params }) {
  const since = params.since ?? "-86400";
  const until = params.until ?? params.at;
  const answer = useJson("events", { since, until, kind: params.kind, host: params.host, limit: LIMIT }, { everyS: 2, ofNow: true });
  return html`<${Panel} title="Events" note=${params.until ? `until ${stamp(instant(params.until))}` : ""}>
    <form class="filters" role="search" aria-label="Filter events" onSubmit=${(event) => event.preventDefault()}>
      <label>since <select value=${since} onChange=${(event) => change({ since: event.target.value, until: null }, true)}>
        ${SPANS.map(([value, word]) => html`<option key=${value} value=${value}>${word}</option>`)}
        ${!SPANS.some(([value]) => value === since) && html`<option value=${since}>${stamp(instant(since))}</option>`}
      </select></label>
      <${Filter} name="kind" hint="link_silent, path_down" value=${params.kind} />
      <${Filter} name="host" hint="name" value=${params.host} />
      <${Filter} name="text" hint="in what it says" value=${params.text} />
      <a href=${href("events")}>clear</a>
    </form>
    <${Answer} of=${answer} at=${params.at}>${(data) => html`<${Found} of=${data} text=${params.text} sinceS=${instant(since)} untilS=${instant(until)} />`}<//>
  <//>`;
}

function Found({ of, text, sinceS, untilS }) {
  const wanted = text?.toLowerCase();
  const events = wanted ? of.events.filter((event) => `${event.kind} ${event.host} ${event.detail} ${event.why ?? ""}`.toLowerCase().includes(wanted)) : of.events;
  const firstS = of.more && of.events.length ? of.events[0].time_s : sinceS;
  return html`
    ${of.incomplete && html`<p class="note">History cannot be read (${of.incomplete}); these are the last in memory.</p>`}
    <p class="note" role="status">${plural(events.length, "event")}${of.more ? `, the newest of more: the oldest is of ${stamp(firstS)}` : ""}</p>
    ${events.length > 0 && html`<${Timeline} events=${events} sinceS=${firstS} untilS=${untilS} />`}
    <${EventRows} id="events" of=${events} empty="Nothing of this kind happened then." />`;
}
