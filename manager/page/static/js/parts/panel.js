/** A titled part of a page. */
import { html } from "../h.js";

/**
 * @param title what it shows
 * @param note a few words beside the title
 * @param tools controls at the right of the title
 */
export function Panel({ title, note, tools, wide, children }) {
  return html`<section class=${`panel ${wide ? "wide" : ""}`} aria-label=${title}>
    <header>
      <h2>${title}</h2>
      ${note && html`<span class="note">${note}</span>`}
      ${tools && html`<div class="tools">${tools}</div>`}
    </header>
    ${children}
  </section>`;
}

/** Names and values in two columns; what has no value is left out. */
export function Facts({ of }) {
  const shown = of.filter(([, value]) => value !== undefined);
  return html`<dl class="facts">
    ${shown.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value ?? "–"}</dd></div>`)}
  </dl>`;
}

/** One of several choices, each a link, so that each has an address. */
export function Choices({ label, options, chosen, address }) {
  return html`<nav class="choices" aria-label=${label}>
    ${options.map(([value, word]) => html`<a
      key=${value} href=${address(value)} aria-current=${value === chosen ? "true" : undefined}>${word}</a>`)}
  </nav>`;
}
