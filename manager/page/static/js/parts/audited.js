/** What audits found: a row for alike findings, with why, what to do and all hosts where it is unfolded. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { change, href, route } from "../routes.js";
import { useStore } from "../store.js";
import { count, plural } from "../words.js";
import { Command } from "./act.js";
import { State } from "./badge.js";
import { Table } from "./table.js";
import { Answer } from "./trouble.js";

/** An audit that is over does not become another. */
export const NEVER_S = 86400;

/**
 * @param id names the table in the address
 * @param label what it lists
 * @param of rows as the manager folds them
 * @param asked which audit and which filters they are of
 */
export function Audited({ id, label, of, asked, empty }) {
  const columns = [
    { name: "verdict", show: (row) => html`<${State} of=${row.verdict} />` },
    { name: "check", show: (row) => html`<${Check} of=${row} />`, value: (row) => row.checks[0] },
    { name: "where", isWrapped: true, show: (row) => html`<${Where} of=${row} />`, value: (row) => row.where },
    { name: "hosts", isNumber: true, show: (row) => count(row.host_count || null), value: (row) => row.host_count },
    { name: "what", isText: true, show: (row) => html`<${What} of=${row} />`, value: (row) => row.found || row.reason },
  ];
  const unfolded = unfoldedIn(useStore(route).params);
  const below = (row) => unfolded.includes(row.key) && html`<${Unfolded} of=${row} asked=${asked} />`;
  return html`<${Table} id=${id} label=${label} columns=${columns} rows=${of} empty=${empty} below=${below} />`;
}

/** The keys of the rows that are unfolded. */
function unfoldedIn({ row = "" }) {
  return row.split(",").filter(Boolean);
}

function Check({ of }) {
  const open = unfoldedIn(useStore(route).params);
  const isOpen = open.includes(of.key);
  const turn = () => change({ row: (isOpen ? open.filter((each) => each !== of.key) : [...open, of.key]).join(",") });
  return html`<button type="button" class="fold" aria-expanded=${isOpen} onClick=${turn}><span aria-hidden="true">${isOpen ? "▾" : "▸"}</span> ${checks(of)}</button>`;
}

/** The name of its check, or how many there are. */
export function checks({ checks: names, check_count: all }) {
  return all === 1 ? names[0] : plural(all, "check");
}

/** Hosts in few words; a single one leads to its page. */
export function Where({ of }) {
  const name = of.host === null ? of.where : html`<a href=${href("host", { name: of.host })}>${of.host}</a>`;
  return html`${name}${of.parts && html` <span class="dim">${of.parts}</span>`}`;
}

function What({ of }) {
  const said = of.variants > 1 ? `${plural(of.variants, "different value")}: ${of.found || of.reason}` : of.found || of.reason;
  return html`
    <p>${said}${of.found && of.expected && html` <span class="dim">expected ${of.expected}</span>`}</p>
    ${of.found && of.reason && html`<p class="dim">${of.reason}${of.until && `, until ${of.until}`}</p>`}`;
}

function Unfolded({ of, asked }) {
  const answer = useJson("audit/finding", { ...asked, key: of.key }, { ofNow: true, everyS: NEVER_S });
  return html`<div class="unfolded">
    ${of.check_count > 1 && html`<p>${of.checks.join(", ")}${of.check_count > of.checks.length && ` and ${of.check_count - of.checks.length} more`}</p>`}
    ${of.why && html`<p>${of.why}</p>`}
    ${of.mend && html`<ul class="steps"><li><${Command} text=${of.mend} /></li></ul>`}
    ${of.reference && html`<p class="dim">${of.reference}</p>`}
    <${Answer} of=${answer} isPart>${(data) => html`<${Each} of=${data} />`}<//>
  </div>`;
}

const EACH = [
  { name: "host", show: (row) => (row.is_host ? html`<a href=${href("host", { name: row.host })}>${row.host}</a>` : row.host) },
  { name: "part", show: (row) => row.subject || "–" },
  { name: "check", show: (row) => row.check },
  { name: "found", show: (row) => row.found || row.reason },
  { name: "expected", show: (row) => row.expected || "–" },
];

/** Its results one by one; columns that say the same in each row are left out. */
function Each({ of }) {
  const { row, results, result_count: all } = of;
  const shown = EACH.filter(({ name }) => name === "host" || (name === "part" && row.parts) || (name === "check" && row.check_count > 1) || (["found", "expected"].includes(name) && row.variants > 1));
  return html`
    <${Table} id="each" label=${`All of ${checks(row)}`} columns=${shown} rows=${results} />
    ${results.length < all && html`<p class="note">${count(results.length)} of ${count(all)}; the filters choose others.</p>`}`;
}
