/** The fabric as tiers of switches and what is wrong in it. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { Details } from "../parts/details.js";
import { Findings } from "../parts/findings.js";
import { Legend } from "../parts/legend.js";
import { Choices, Panel } from "../parts/panel.js";
import { LinkName } from "../parts/rows.js";
import { State } from "../parts/badge.js";
import { Table } from "../parts/table.js";
import { Answer } from "../parts/trouble.js";
import { Tiers } from "../pictures/tiers.js";
import { href } from "../routes.js";
import { bps, count, ns, plural, share } from "../words.js";

const ROWS = 50;

/** The map; `open` names groups that are shown one by one, `by` what colours links. */
export function FabricMap({ params }) {
  const open = params.open ? params.open.split(",") : [];
  const by = params.by === "load" ? "load" : "queue";
  const answer = useJson("map", { open: params.open });
  const choices = html`<${Choices} label="What colours links" chosen=${by} options=${[["queue", "Queue"], ["load", "Load"]]}
    address=${(name) => href("map", { ...params, by: name })} />`;
  return html`<${Answer} of=${answer} at=${params.at}>${(map) => html`
    <${Panel} title="Map" note="links by their ${by}, the worst on top" tools=${choices}>
      ${open.length > 0 && html`<p class="ways">Opened: ${open.map((id) => html`<a key=${id} href=${href("map", { ...params, open: open.filter((each) => each !== id).join(",") })}>close ${id}</a>`)}</p>`}
      ${map.tiers.length ? html`<${Tiers} map=${map} by=${by} open=${open} />` : html`<p class="empty">No switch is known yet: paths are still being traced.</p>`}
      <${Legend} metric=${by === "load" ? "share" : "queue"} hatched="not known" />
      ${by === "load" && params.at !== undefined && html`<p class="note">History keeps what links carried, but not what they can carry: how full they were is not known.</p>`}
      <${LinkTable} of=${map.links} />
    <//>
    <div class="columns even">
      <${Panel} title="Findings"><${Findings} of=${map.findings} /><//>
      <${Panel} title="Wiring" note="what is not where the pattern of the rest has it"><${Wiring} of=${map} /><//>
    </div>`}
  <//>`;
}

const LINK = [
  { name: "worst of", show: (row) => html`<${LinkName} ...${row.worst} />`, value: (row) => `${row.worst.a} ${row.worst.b}` },
  { name: "links", isNumber: true, show: (row) => count(row.count), value: (row) => row.count },
  { name: "state", show: (row) => html`<${State} of=${row.state} />`, value: (row) => row.state },
  { name: "queue p99", isNumber: true, show: (row) => ns(row.queue_p99_ns), value: (row) => row.queue_p99_ns },
  { name: "load", isNumber: true, show: (row) => bps(row.load_bps), value: (row) => row.load_bps },
  { name: "share", isNumber: true, show: (row) => share(row.share), value: (row) => row.share },
  { name: "avoided", isNumber: true, show: (row) => count(row.avoided), value: (row) => row.avoided },
];

function LinkTable({ of }) {
  const isCalm = (row) => Number(row.state === "ok");
  const rows = [...of].sort((a, b) => isCalm(a) - isCalm(b) || (b.queue_p99_ns ?? -1) - (a.queue_p99_ns ?? -1)).slice(0, ROWS);
  return html`<${Details} id="links" summary=${`the worst ${plural(rows.length, "link")} as a table`}>
    <${Table} id="links" label="Links of the map" columns=${LINK} rows=${rows} />
  <//>`;
}

function Wiring({ of }) {
  const suspects = [
    { name: "what", show: (row) => row.what, value: (row) => row.what },
    { name: "is at", show: (row) => row.at, value: (row) => row.at },
    { name: "expected at", show: (row) => row.expected, value: (row) => row.expected },
    { name: "why", isText: true, show: (row) => row.reason },
  ];
  const rails = [
    { name: "rail", show: (row) => row.ifname },
    { name: "leaves", isText: true, show: (row) => row.leaves.map((name, i) => html`${i > 0 && ", "}<a href=${href("leaf", { name })}>${name}</a>`) },
  ];
  return html`
    <${Table} id="suspects" label="Suspected wiring" columns=${suspects} rows=${of.suspects} empty="Everything is where it is expected." />
    ${of.rails.length > 0 && html`<${Table} id="rails" label="Rails" columns=${rails} rows=${of.rails} />`}
    ${of.avoided?.length > 0 && html`<p>Queue pairs are kept off: ${of.avoided.map((link, i) => html`${i > 0 && ", "}<${LinkName} key=${`${link.a} ${link.b}`} ...${link} />`)}</p>`}
    ${of.set_aside?.length > 0 && html`<p>What these hosts say of paths does not count, as others contradict it: ${of.set_aside.join(", ")}</p>`}`;
}
