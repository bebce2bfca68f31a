/** A state or a severity: symbol, word and colour together, so that none has to be told from colour alone. */
import { html } from "../h.js";
import { SEVERITIES, stateWords } from "../words.js";

/** The state of a link, a switch, a host, a clock or a finding. */
export function State({ of }) {
  const { symbol, word, severity } = stateWords(of);
  return html`<span class="badge ${severity}"><span class="symbol" aria-hidden="true">${symbol}</span>${word}</span>`;
}

/** How grave something is. */
export function Severity({ of }) {
  const { symbol, word } = SEVERITIES[of] ?? SEVERITIES.unknown;
  return html`<span class="badge ${of}"><span class="symbol" aria-hidden="true">${symbol}</span>${word}</span>`;
}
