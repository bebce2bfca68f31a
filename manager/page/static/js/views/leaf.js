/** A leaf, or a pair of leaves: NIC by NIC, uplinks, queue pairs, what is wrong. */
import { useJson } from "../api.js";
import { html, useMemo } from "../h.js";
import { Details } from "../parts/details.js";
import { Findings } from "../parts/findings.js";
import { Choices, Facts, Panel } from "../parts/panel.js";
import { Links, QueuePairs, shownOf } from "../parts/rows.js";
import { useSelection } from "../parts/selection.js";
import { Table } from "../parts/table.js";
import { Answer } from "../parts/trouble.js";
import { bytes, decoded } from "../pictures/classes.js";
import { Heatmap } from "../pictures/heatmap.js";
import { go, href, route } from "../routes.js";
import { useStore } from "../store.js";
import { METRICS, ns, share } from "../words.js";

const ROWS = 50;

/** The page of `name`, or of the pair that it makes with `peer`. */
export function Leaf({ params }) {
  const answer = useJson("leaf", { name: params.name, peer: params.peer });
  return html`<${Answer} of=${answer} at=${params.at}>${(leaf) => html`
    <${Panel} title=${leaf.peer ? `${leaf.name} > ${leaf.peer}` : leaf.name} note=${kindOf(leaf)}
      tools=${html`<${Ways} of=${leaf} />`}>
      ${leaf.pair && html`<${Pair} of=${leaf.pair} />`}
      <${Findings} of=${leaf.findings} empty="Nothing is wrong here." />
    <//>
    ${!(leaf.tier > 1) && html`<${NicByNic} of=${leaf} />`}
    ${leaf.downlinks.length > 0 && html`<${Panel} title="Downlinks" note="each way by itself">
      <${Links} id="downlinks" label="Downlinks" of=${leaf.downlinks.flatMap(({ down, up }) => [down, up])} />
    <//>`}
    <${Panel} title="Uplinks" note="each way by itself">
      <${Links} id="uplinks" label="Uplinks" of=${leaf.uplinks.flatMap(({ up, down }) => [up, down])} empty="no uplink is known" />
    <//>
    <${Panel} title="NICs" note="to and from the leaf">
      <${Links} id="nics" label="Links of NICs" of=${leaf.nics.flatMap(({ to, from }) => [to, from])} empty="no NIC is known here" />
    <//>
    <${Suspects} of=${leaf.suspects} />
    <${Panel} title="Queue pairs" note=${shownOf(leaf.queue_pairs, leaf.queue_pair_count, "queue pair")}>
      <${QueuePairs} id="qps" label="Queue pairs" of=${leaf.queue_pairs} />
    <//>`}
  <//>`;
}

function kindOf({ tier, rails }) {
  if (tier > 1) return `switch of tier ${tier}`;
  return rails.length ? `leaf of rail ${rails.join(", ")}` : "leaf";
}

function Ways({ of }) {
  if (!of.peer) return null;
  return html`<a href=${href("leaf", { name: of.name })}>${of.name}</a>
    <a href=${href("leaf", { name: of.peer, peer: of.name })}>the other way</a>
    <a href=${href("leaf", { name: of.peer })}>${of.peer}</a>`;
}

function Pair({ of }) {
  return html`<${Facts} of=${[["least delay", ns(of.owd_min_ns)], ["p50", ns(of.owd_p50_ns)], ["p99", ns(of.owd_p99_ns)], ["loss", share(of.loss)]]} />`;
}

function Suspects({ of }) {
  if (!of.length) return null;
  const columns = [
    { name: "what", show: (row) => row.what },
    { name: "is at", show: (row) => row.at },
    { name: "expected at", show: (row) => row.expected },
    { name: "why", isText: true, show: (row) => row.reason },
  ];
  return html`<${Panel} title="Suspected wiring"><${Table} id="suspects" label="Suspected wiring" columns=${columns} rows=${of} /><//>`;
}

function NicByNic({ of }) {
  const { params } = useStore(route);
  const { matrix } = of;
  const metrics = matrix ? Object.keys(matrix.metrics).filter((name) => METRICS[name]) : [];
  const metric = metrics.includes(params.metric) ? params.metric : (metrics[0] ?? "spread");
  const codes = useMemo(() => (matrix ? bytes(matrix.metrics[metric]) : null), [matrix?.metrics[metric]]);
  const [selected, select] = useSelection(matrix?.rows ?? [], matrix?.columns ?? []);
  const title = of.peer ? "NIC by NIC" : "NIC by leaf";
  if (!matrix) return html`<${Panel} title=${title}><p class="empty">Delays of single NICs are not kept of the past: go live to see them.</p><//>`;
  if (!matrix.rows.length || !matrix.columns.length) return html`<${Panel} title=${title}><p class="empty">No NIC is known here.</p><//>`;
  const open = ([row, column]) => go(cellHref(of, matrix.rows[row], matrix.columns[column]));
  const choices = html`<${Choices} label="What the heat map shows" chosen=${metric} options=${metrics.map((name) => [name, METRICS[name].title])}
    address=${(name) => href("leaf", { ...params, metric: name })} />`;
  return html`<${Panel} title=${title} tools=${choices}>
    <${Heatmap} label=${title} rows=${matrix.rows} columns=${matrix.columns} codes=${codes} scale=${matrix.scales[metric]} metric=${metric}
      selected=${selected} onSelect=${select} onOpen=${open} />
    <${Worst} of=${matrix} codes=${codes} metric=${metric} />
  <//>`;
}

/** A cell of a leaf's own page leads to the pair; one of a pair to the host that sends. */
function cellHref(leaf, nic, column) {
  if (leaf.peer) return href("host", { name: nic.split("/")[0] });
  return href("leaf", column === leaf.name ? { name: column } : { name: leaf.name, peer: column });
}

function Worst({ of, codes, metric }) {
  const { title, format } = METRICS[metric];
  const rows = [...codes.keys()].filter((i) => codes[i] > 0).sort((a, b) => codes[b] - codes[a]).slice(0, ROWS).map((i) => ({
    src: of.rows[Math.floor(i / of.columns.length)],
    dst: of.columns[i % of.columns.length],
    value: decoded(codes[i], of.scales[metric]),
  }));
  const columns = [
    { name: "from", show: (row) => html`<a href=${href("host", { name: row.src.split("/")[0] })}>${row.src}</a>`, value: (row) => row.src },
    { name: "to", show: (row) => row.dst, value: (row) => row.dst },
    { name: title.toLowerCase(), isNumber: true, show: (row) => format(row.value), value: (row) => row.value },
  ];
  return html`<${Details} id="worst" summary=${`the worst ${rows.length} as a table`}>
    <${Table} id="worst" label="The worst pairs" columns=${columns} rows=${rows} empty="nothing was probed" />
  <//>`;
}
