/** What is wrong: a sentence that leads to the place, how sure, what it touches, and what to do. */
import { html } from "../h.js";
import { change, href, placeHref, route } from "../routes.js";
import { useStore } from "../store.js";
import { ago, instant, stamp } from "../time.js";
import { plural, share } from "../words.js";
import { Severity } from "./badge.js";
import { Steps } from "./act.js";

const FEW = 5;

/** @param of findings, the most severe first; @param isShort whether a few are shown until more are wanted */
export function Findings({ of, empty = "No open finding.", nowS, isShort }) {
  const { params } = useStore(route);
  if (!of.length) return html`<p class="empty">${empty}</p>`;
  const seenS = nowS ?? instant(params.at);
  const shown = isShort && !params.all ? of.slice(0, FEW) : of;
  return html`<ol class="findings">
    ${shown.map((finding) => html`<${Finding} key=${finding.number ?? finding.title} of=${finding} nowS=${seenS} />`)}
  </ol>
  ${shown.length < of.length && html`<p class="more"><button type="button" onClick=${() => change({ all: 1 })}>show all ${of.length}</button></p>`}`;
}

function Finding({ of, nowS }) {
  return html`<li class=${`finding ${of.severity}`}>
    <div class="title">
      <${Severity} of=${of.severity} />
      ${of.where ? html`<a href=${placeHref(of.where)}>${of.title}</a>` : html`<strong>${of.title}</strong>`}
    </div>
    <p class="about">
      ${[of.start_s && `since ${stamp(of.start_s)} (${ago(of.start_s, nowS)})`, of.end_s && `until ${stamp(of.end_s)}`, sureness(of), touched(of)].filter(Boolean).join(" · ")}
    </p>
    ${of.evidence?.length > 0 && html`<p class="evidence">${of.evidence.join("; ")}</p>`}
    <${Also} of=${of} />
    <${Jobs} names=${of.touches?.jobs ?? []} />
    <${Steps} of=${of.act} />
  </li>`;
}

function sureness({ confidence, loss }) {
  const sure = Number.isFinite(confidence) ? `${share(confidence)} sure` : null;
  return [sure, loss > 0 ? `${share(loss)} lost` : null].filter(Boolean).join(" · ");
}

function touched({ touches }) {
  return Number.isFinite(touches?.queue_pairs) ? `touches ${plural(touches.queue_pairs, "queue pair")}` : null;
}

function Also({ of }) {
  const links = (of.also ?? []).flatMap((subject) => subject.links.slice(0, 1));
  if (!links.length) return null;
  return html`<p class="evidence">It cannot be told from ${links.map(([a, b], i) => html`${i > 0 && " or "}<a key=${i} href=${href("link", { a, b })}>${a} > ${b}</a>`)}.</p>`;
}

function Jobs({ names }) {
  if (!names.length) return null;
  return html`<p class="evidence">Jobs: ${names.map((name, i) => html`${i > 0 && ", "}<a key=${name} href=${href("job", { name })}>${name}</a>`)}</p>`;
}
