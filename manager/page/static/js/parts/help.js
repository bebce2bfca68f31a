/** The keys, and what the symbols mean. */
import { html } from "../h.js";
import { KEYS } from "../keys.js";
import { State } from "./badge.js";

const SHOWN = ["dead", "silent", "lossy", "flapping", "slow", "suspected", "avoided", "full", "ok", "unknown"];

/** @param box reference to the dialog */
export function Help({ box }) {
  return html`<dialog ref=${box} aria-labelledby="help">
    <h2 id="help">Keys</h2>
    <dl class="keys">${KEYS.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <h2>Symbols</h2>
    <p class="symbols">${SHOWN.map((state) => html`<${State} key=${state} of=${state} />`)}</p>
    <p class="note">The page only reads. What is to be done it names as a command for a terminal.</p>
    <form method="dialog"><button autofocus>Close</button></form>
  </dialog>`;
}
