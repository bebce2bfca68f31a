/** What is folded away until it is wanted; the address keeps what was unfolded. */
import { html } from "../h.js";
import { change, route } from "../routes.js";
import { useStore } from "../store.js";

/** @param id names it in the address; @param summary what stands there while it is folded */
export function Details({ id, summary, children }) {
  const unfolded = (useStore(route).params.unfolded ?? "").split(",").filter(Boolean);
  const isOpen = unfolded.includes(id);
  function toggled(event) {
    if (event.currentTarget.open === isOpen) return;
    const others = unfolded.filter((each) => each !== id);
    change({ unfolded: (isOpen ? others : [...others, id]).join(",") });
  }
  return html`<details open=${isOpen} onToggle=${toggled}><summary>${summary}</summary>${children}</details>`;
}
