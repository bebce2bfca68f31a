/** Audits: what the last one found, or another that is kept, what has changed since the one before, and how far one has come. */
import { useJson } from "../api.js";
import { html, useRef } from "../h.js";
import { Command } from "../parts/act.js";
import { Audited, NEVER_S, Where, checks } from "../parts/audited.js";
import { Severity, State } from "../parts/badge.js";
import { Details } from "../parts/details.js";
import { Filter } from "../parts/filter.js";
import { Facts, Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Answer } from "../parts/trouble.js";
import { change, href } from "../routes.js";
import { ago, duration, instant, stamp, wholeStamp } from "../time.js";
import { VERDICTS, count, plural, stateWords } from "../words.js";

/** The page of audits; `number` chooses one, `verdict` (several by commas), `q` and `host` are the manager's filters. */
export function Audit({ params }) {
  const answer = useJson("audit/list", {}, { ofNow: true });
  return html`<div class="page">
    <${UnderWay} />
    <${Answer} of=${answer} at=${params.at}>${({ audits }) => html`<${Kept} of=${audits} params=${params} />`}<//>
  </div>`;
}

/** How far the audit has come that is under way. */
function UnderWay() {
  const { data } = useJson("audit/progress", {}, { ofNow: true, everyS: 1 });
  if (!data?.number) return null;
  const { number, level, stage, answered, hosts, rounds, most_rounds: mostRounds, left_s: leftS } = data;
  const sends = stage === "flows";
  const said = sends ? `${count(rounds)} of at most ${plural(mostRounds, "round")} of flows are over` : `${count(answered)} of ${plural(hosts, "host")} told their ${stage}`;
  return html`<${Panel} title=${`Audit ${number} is under way`} note=${level}>
    <p role="status">${said}; ${duration(leftS)} left at most.</p>
    <progress aria-label=${sends ? "rounds of flows" : "hosts that have told"} max=${sends ? mostRounds : hosts} value=${sends ? rounds : answered}></progress>
  <//>`;
}

/** The one that is chosen, or the last one before the instant that is shown. */
function Kept({ of, params }) {
  const until = instant(params.at, Infinity);
  const number = params.number ?? of.find((audit) => audit.ended_s <= until)?.number;
  if (!of.length) return html`<${Panel} title="Audit"><p class="empty">No audit has been made. An operator has one made by <${Command} text="cwdp audit run" /></p><//>`;
  const older = of.find((audit) => audit.number < number)?.number;
  return html`
    ${number === undefined ? html`<${Panel} title="Audit"><p class="empty">Of that time no audit is kept.</p><//>` : html`<${One} key=${number} number=${number} params=${params} />`}
    ${older !== undefined && html`<${Changes} older=${older} newer=${number} />`}
    <${Panel} title="Kept audits" note="of this manager"><${Table} id="kept" label="Kept audits" columns=${kept(String(number))} rows=${of} /><//>`;
}

function One({ number, params }) {
  const asked = { number, verdict: params.verdict, q: params.q, host: params.host };
  const answer = useLast(useJson("audit/findings", asked, { ofNow: true, everyS: NEVER_S }));
  return html`<${Panel} title=${`Audit ${number}`} note=${answer.data ? `${stamp(answer.data.ended_s)}, ${ago(answer.data.ended_s)}, by ${answer.data.by}` : ""}>
    <form class="filters" role="search" aria-label="Filter findings" onSubmit=${(event) => event.preventDefault()}>
      <${Filter} name="q" label="text" hint="check, host or part" value=${params.q} />
      <${Filter} name="host" hint="name, or gpu1*" value=${params.host} />
      <a href=${href("audit", { number: params.number })}>clear</a>
    </form>
    <${Answer} of=${answer} isPart>${(data) => html`<${Found} of=${data} asked=${asked} />`}<//>
  <//>`;
}

/** The answer to other filters stays until the next is there, so that what has the focus keeps it. */
function useLast(answer) {
  const last = useRef(null);
  if (answer.data || answer.error) last.current = answer.data;
  return answer.data || answer.error ? answer : { ...answer, data: last.current, isOld: true };
}

function Found({ of, asked }) {
  const { rows, row_count: all, shared, shared_count: sharedCount } = of;
  const isFiltered = asked.verdict || asked.q || asked.host;
  return html`
    <p class="about"><${Severity} of=${of.severity} /> ${of.said}</p>
    <${Facts} of=${[["level", of.level], ["hosts", count(of.hosts)], ["began", wholeStamp(of.began_s)], ["took", duration(of.ended_s - of.began_s)]]} />
    ${of.flows && html`<p>${of.flows}.</p>`}
    <${Chips} of=${of} chosen=${(asked.verdict ?? "").split(",").filter(Boolean)} />
    <${Audited} id="findings" label="Findings" of=${rows} asked=${asked} empty=${isFiltered ? "No finding is like that." : "All is as it should be."} />
    ${rows.length < all && html`<p class="note">${count(rows.length)} of ${plural(all, "row")}, the gravest; the filters choose others. In a terminal: <${Command} text=${`cwdp audit show --number ${of.number}`} /></p>`}
    ${sharedCount > 0 && html`<${Details} id="shared" summary=${`what all hosts of a group cannot tell: ${plural(sharedCount, "row")}; nothing is wrong with one of them`}>
      <${Audited} id="shared" label="What all hosts of a group cannot tell" of=${shared} asked=${asked} />
    <//>`}`;
}

/** How often each verdict was found; pressing one chooses it. */
function Chips({ of, chosen }) {
  const turn = (verdict) => change({ verdict: (chosen.includes(verdict) ? chosen.filter((each) => each !== verdict) : [...chosen, verdict]).join(",") }, true);
  const shown = VERDICTS.filter((verdict) => of.counts[verdict] || chosen.includes(verdict));
  return html`<div class="chips" role="group" aria-label="Verdicts">
    ${shown.map((verdict) => html`<button key=${verdict} type="button" aria-pressed=${chosen.includes(verdict)} onClick=${() => turn(verdict)}><${State} of=${verdict} /> ${count(of.counts[verdict] ?? 0)}</button>`)}
    ${of.passed !== null && html`<span class="chip"><${State} of="pass" /> ${count(of.passed)}</span>`}
  </div>`;
}

const CHANGED = [
  { name: "change", show: (row) => row.kind, value: (row) => row.kind },
  { name: "verdict", show: (row) => html`<${State} of=${row.verdict} />`, value: (row) => stateWords(row.verdict).word },
  { name: "check", show: checks, value: checks },
  { name: "where", isWrapped: true, show: (row) => html`<${Where} of=${row} />`, value: (row) => row.where },
  { name: "what", isText: true, show: (row) => (row.before ? html`${row.before} <span aria-label="became">→</span> ${row.after}` : row.after) },
];

/** What is new, another, or gone since the one before. */
function Changes({ older, newer }) {
  const answer = useJson("audit/changes", { older, newer }, { ofNow: true, everyS: NEVER_S });
  return html`<${Panel} title="What has changed" note=${`since audit ${older}`}>
    <${Answer} of=${answer} isPart>${(data) => {
      const rows = ["new", "changed", "gone"].flatMap((kind) => data[kind].map((row) => ({ ...row, kind, key: `${kind} ${row.key}` })));
      const all = data.new_count + data.changed_count + data.gone_count;
      return html`
        <${Table} id="changes" label="What has changed" columns=${CHANGED} rows=${rows} empty="Nothing has changed." />
        ${rows.length < all && html`<p class="note">${count(rows.length)} of ${plural(all, "row")}. In a terminal: <${Command} text=${`cwdp audit diff ${older} ${newer}`} /></p>`}`;
    }}<//>
  <//>`;
}

/** The columns of the list. */
function kept(shown) {
  return [
    { name: "no.", show: (row) => html`<a href=${href("audit", { number: row.number })} aria-current=${String(row.number) === shown ? "true" : undefined}>${row.number}</a>`, value: (row) => row.number },
    { name: "time", show: (row) => wholeStamp(row.ended_s), value: (row) => row.ended_s },
    { name: "level", show: (row) => row.level, value: (row) => row.level },
    { name: "hosts", isNumber: true, show: (row) => count(row.hosts), value: (row) => row.hosts },
    { name: "came to", show: (row) => html`<${Severity} of=${row.severity} />`, value: (row) => row.severity },
    { name: "what", isText: true, show: (row) => row.said },
    { name: "by", show: (row) => row.by, value: (row) => row.by },
  ];
}
