/** A field that changes the address once typing rests. */
import { html, useEffect, useRef, useState } from "../h.js";
import { change } from "../routes.js";

const RESTS_MS = 250;

/**
 * @param name what it is called in the address, and beside the field unless `label` says otherwise
 * @param hint what may stand in it
 * @param value what stands in it
 */
export function Filter({ name, label = name, hint, value = "" }) {
  const [text, setText] = useState(value);
  const waiting = useRef(0);
  useEffect(() => setText(value), [value]);
  useEffect(() => () => clearTimeout(waiting.current), []);
  function typed(event) {
    const wanted = event.target.value;
    setText(wanted);
    clearTimeout(waiting.current);
    waiting.current = setTimeout(() => change({ [name]: wanted || null }), RESTS_MS);
  }
  return html`<label>${label} <input type="search" value=${text} placeholder=${hint} onInput=${typed} spellcheck="false" autocomplete="off" /></label>`;
}
