/** Pages that say why there is nothing to see, and lead back. */
import { html } from "../h.js";
import { href } from "../routes.js";

/** What went wrong, the next step, and the way back. */
export function Trouble({ title, hint, at }) {
  return html`<section class="panel trouble" role="alert">
    <h2>${title}</h2>
    ${hint && html`<p>${hint}</p>`}
    <p class="ways">
      <a href=${href("fleet", {}, null)}>Back to Fleet${at !== undefined && ", as it is now"}</a>
    </p>
  </section>`;
}

/**
 * What a page shows of an answer: why there is none, that it is waited for, or the page.
 * @param of what `useJson` returned
 * @param isPart whether it is a part of a page, which then says in a line why it is empty
 * @param children a function of the data
 */
export function Answer({ of, at, isPart, children }) {
  if (of.error && !of.data && isPart) return html`<p class="empty">${[of.error.message, of.error.hint].filter(Boolean).join(": ")}</p>`;
  if (of.error && !of.data) return html`<${Trouble} title=${of.error.message} hint=${of.error.hint} at=${at} />`;
  if (!of.data) return html`<p class="waiting" role="status">Asking the manager …</p>`;
  return html`<div class=${of.isOld ? "page old" : "page"}>${children(of.data)}</div>`;
}
