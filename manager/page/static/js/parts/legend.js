/** What the colours and symbols of a picture mean. */
import { html } from "../h.js";
import { COLOURS, INKS, SYMBOLS, bounds, classWords } from "../pictures/classes.js";

/** @param metric one with classes; @param largest value shown; @param hatched what hatching means, if anything */
export function Legend({ metric, largest, hatched }) {
  const words = classWords(metric, bounds(metric, largest));
  return html`<ul class="legend" aria-label="Legend">
    ${words.map((word, i) => html`<li key=${word}>
      <span class="swatch" aria-hidden="true" style=${{ background: COLOURS[i], color: INKS[i] }}>${SYMBOLS[i]}</span>${word}
    </li>`)}
    ${hatched && html`<li><span class="swatch hatched" aria-hidden="true"></span>${hatched}</li>`}
  </ul>`;
}
