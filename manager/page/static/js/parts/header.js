/** What stands above every page: where to go, the verdict in words, and what is to be known before anything is believed. */
import { useJson } from "../api.js";
import { html } from "../h.js";
import { PAGES, href, route } from "../routes.js";
import { signOut, viewer } from "../session.js";
import { useStore } from "../store.js";
import { connection, tick } from "../stream.js";
import * as themes from "../theme.js";
import { CONNECTIONS, SEVERITIES, spaced } from "../words.js";
import { Severity } from "./badge.js";
import { Search } from "./search.js";

const TABS = ["fleet", "map", "jobs", "clocks", "events", "audit"];
const ABOVE = { leaf: "fleet", host: "fleet", qp: "fleet", link: "map", job: "jobs", iterations: "jobs" };

/** @param field reference to the search field; @param help what opens the help */
export function Header({ field, help }) {
  const { page } = useStore(route);
  const theme = useStore(themes.theme);
  const newest = useStore(tick);
  const who = useStore(viewer);
  const here = ABOVE[page] ?? page;
  return html`<header class="top">
    <a class="skip" href="#main" onClick=${skip}>Skip to the page</a>
    <div class="bar">
      <a class="brand" href=${href("fleet")}>cwdp${newest?.cluster && html` <span>${newest.cluster}</span>`}</a>
      <nav aria-label="Pages">
        ${TABS.map((name) => html`<a key=${name} href=${href(name)} aria-current=${name === page ? "page" : name === here ? "true" : undefined}>${PAGES[name].title}</a>`)}
      </nav>
      <${Search} field=${field} />
      <button type="button" onClick=${themes.next} aria-label=${`colours: ${theme}; press for the next`}>${theme}</button>
      <button type="button" onClick=${help} aria-label="keys">?</button>
      ${who?.signed_in && html`<button type="button" onClick=${signOut} title=${`${who.name}: ${who.role}`}>Sign out</button>`}
    </div>
  </header>`;
}

/** The hash of the address is the page, so the skip link moves the focus itself. */
function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

/** The verdict of now or of the instant shown, and the notices of now. */
export function Verdict() {
  const { params } = useStore(route);
  const newest = useStore(tick);
  return html`<div class="verdicts">
    <${Connection} />
    ${params.at === undefined ? html`<${Sentence} of=${newest?.verdict} />` : html`<${Then} />`}
    ${untold(newest, params.at).map((notice) => html`<${Notice} key=${notice.state} severity=${notice.severity} state=${notice.state} text=${notice.text} />`)}
  </div>`;
}

/** A verdict of now tells what notices say already. */
function untold(newest, at) {
  const told = at === undefined ? (newest?.verdict.text ?? "") : "";
  return (newest?.notices ?? []).filter((notice) => !told.includes(notice.text));
}

function Then() {
  const answer = useJson("fleet");
  if (answer.error) return html`<${Sentence} waiting="Not known of that time." />`;
  return html`<${Sentence} of=${answer.data?.verdict} prefix="then: " isOld=${answer.isOld} />`;
}

function Sentence({ of, prefix = "", waiting = "Not known yet: waiting for the manager.", isOld = false }) {
  const severity = of?.severity ?? "unknown";
  return html`<p class=${`verdict ${severity}${isOld ? " old" : ""}`} aria-live="polite">
    <span class="symbol" aria-hidden="true">${SEVERITIES[severity]?.symbol ?? "?"}</span>
    <span>${of ? `${prefix}${of.text}` : waiting}</span>
  </p>`;
}

function Connection() {
  const state = useStore(connection);
  const told = CONNECTIONS[state];
  return told ? html`<${Notice} ...${told} state=${state} />` : null;
}

function Notice({ severity, state, text }) {
  return html`<p class=${`notice ${severity}`} data-state=${state} role="status"><${Severity} of=${severity} /> <strong class="unseen">${spaced(state)}:</strong> ${text}</p>`;
}
