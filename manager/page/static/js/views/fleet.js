/** The whole in one look: what is wrong, where packets wait, what happened. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { useMatrix } from "../matrix.js";
import { Details } from "../parts/details.js";
import { Findings } from "../parts/findings.js";
import { Choices, Panel } from "../parts/panel.js";
import { Events, JobRows, Links, QueuePairs } from "../parts/rows.js";
import { useSelection } from "../parts/selection.js";
import { Table } from "../parts/table.js";
import { Answer } from "../parts/trouble.js";
import { Heatmap } from "../pictures/heatmap.js";
import { Timeline } from "../pictures/timeline.js";
import { go, href, route } from "../routes.js";
import { useStore } from "../store.js";
import { stamp } from "../time.js";
import { METRICS, count, plural } from "../words.js";

const SPANS = { "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400 };

/** The page that everything begins at. */
export function Fleet({ params }) {
  const fleet = useJson("fleet");
  return html`<${Answer} of=${fleet} at=${params.at}>${(data) => html`
    <div class="columns">
      <div>
        <${Panel} title="Findings" note=${data.finding_count ? plural(data.finding_count, "open finding") : ""}>
          <${Findings} of=${data.findings} nowS=${data.at_s} isShort />
        <//>
        <${Happened} untilS=${data.at_s} span=${SPANS[params.span] ? params.span : "1h"} />
        <${Panel} title="Jobs"><${JobRows} id="jobs" of=${data.jobs} isShort /><//>
      </div>
      <div>
        <${Panel} title="Fleet" note=${data.is_live ? "" : "– is not kept of the past"}><${Counts} of=${data} /><//>
        <${LeafByLeaf} metric=${METRICS[params.metric] ? params.metric : "spread"} />
      </div>
    </div>
    <${Panel} title="Worst links" note="those in trouble first, then the longest queue" tools=${html`<a href=${href("map")}>map</a>`}>
      <${Links} id="links" label="Worst links" of=${data.worst_links} empty="no link is known yet" />
    <//>
    <${Panel} title="Slowest queue pairs" note="the longest one-way delay above the least first">
      <${QueuePairs} id="qps" label="Slowest queue pairs" of=${data.slowest_queue_pairs} />
    <//>`}
  <//>`;
}

/** Of the past some counts are not known. */
function Counts({ of }) {
  const { hosts, nics, clocks } = of;
  const tile = (word, number, about) => html`<div class="tile" key=${word}><dt>${word}</dt><dd>${count(number)}</dd>${about && html`<dd class="warning">${about}</dd>`}</div>`;
  return html`<dl class="tiles">
    ${tile("hosts up", hosts?.up, hosts?.lost ? `${count(hosts.lost)} lost` : "")}
    ${tile("NICs probed", nics.probed, nics.not_probed ? `${count(nics.not_probed)} not probed` : "")}
    ${tile("switches", of.switches)}
    ${tile("links, each way", of.links)}
    ${tile(of.is_live ? "queue pairs" : "queue pairs kept", of.queue_pairs)}
    ${tile("clocks synced", clocks?.synced, clocks ? clockWords(clocks) : "")}
  </dl>`;
}

function clockWords({ holdover, unsynced, set_aside: setAside }) {
  const parts = [[holdover, "holdover"], [unsynced, "unsynced"], [setAside, "set aside"]];
  return parts.filter(([number]) => number).map(([number, word]) => `${count(number)} ${word}`).join(", ");
}

function LeafByLeaf({ metric }) {
  const { params } = useStore(route);
  const matrix = useMatrix(metric);
  const choices = html`<${Choices} label="What the heat map shows" chosen=${metric}
    options=${Object.entries(METRICS).map(([name, { title }]) => [name, title])}
    address=${(name) => href("fleet", { ...params, metric: name })} />`;
  return html`<${Panel} title="Leaf by leaf" tools=${choices}>
    <${Answer} of=${matrix} isPart>${(data) => html`<${Matrix} of=${data} metric=${metric} />`}<//>
  <//>`;
}

function Matrix({ of, metric }) {
  const [selected, select] = useSelection(of.names, of.names);
  if (!of.names.length) return html`<p class="empty">No leaf is known yet.</p>`;
  const open = ([row, column]) => go(pairHref(of, row, column));
  return html`
    <${Heatmap} label="Leaf by leaf" rows=${of.names} columns=${of.names} codes=${of.codes} scale=${of} metric=${metric}
      selected=${selected} onSelect=${select} onOpen=${open} />
    ${of.members && html`<p class="note">Each row is the worst of several leaves.</p>`}
    <${Worst} of=${of.worst} metric=${metric} />`;
}

/** Of a row of several leaves, the first of each. */
function pairHref({ names, members }, row, column) {
  const leaf = (i) => members?.[i]?.[0] ?? names[i];
  return href("leaf", row === column ? { name: leaf(row) } : { name: leaf(row), peer: leaf(column) });
}

function Worst({ of, metric }) {
  const columns = [
    { name: "from", show: (row) => html`<a href=${href("leaf", { name: row.src, peer: row.dst })}>${row.src}</a>`, value: (row) => row.src },
    { name: "to", show: (row) => html`<a href=${href("leaf", { name: row.dst })}>${row.dst}</a>`, value: (row) => row.dst },
    { name: METRICS[metric].title.toLowerCase(), isNumber: true, show: (row) => METRICS[metric].format(row.value), value: (row) => row.value },
  ];
  return html`<${Details} id="worst" summary=${`the worst ${of.length} as a table`}>
    <${Table} id="worst" label="The worst pairs of leaves" columns=${columns} rows=${of} empty="no pair was probed" />
  <//>`;
}

function Happened({ untilS, span }) {
  const { params } = useStore(route);
  const sinceS = untilS - SPANS[span];
  const events = useJson("events", { since: minute(sinceS), until: params.at === undefined ? null : untilS.toFixed(0), limit: 1000 }, { everyS: 5, ofNow: true });
  const choices = html`<${Choices} label="How far back" chosen=${span} options=${Object.keys(SPANS).map((name) => [name, name])}
    address=${(name) => href("fleet", { ...params, span: name })} />`;
  return html`<${Panel} title="What happened" note=${`until ${stamp(untilS)}`} tools=${choices}>
    <${Answer} of=${events} isPart>${(data) => html`
      <${Timeline} events=${data.events} sinceS=${sinceS} untilS=${untilS} />
      <${Details} id="events" summary="the newest as a table"><${Events} id="events" of=${data.events.slice(-20)} /><//>
      <p class="more"><a href=${href("events", { since: sinceS.toFixed(0) })}>all events</a></p>`}
    <//>
  <//>`;
}

/** Whole minutes, so that the question stays the same for a while. */
function minute(timeS) {
  return Math.floor(timeS / 60) * 60;
}
