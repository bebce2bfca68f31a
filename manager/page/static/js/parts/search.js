/** Search by name: hosts, NICs, switches, links, jobs. */
import { ask, question } from "../api.js";
import { html, useEffect, useState } from "../h.js";
import { go, placeHref } from "../routes.js";

const RESTS_MS = 120;

/** A field with what is found below it; arrows choose, Enter goes there. */
export function Search({ field }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState([]);
  const [chosen, setChosen] = useState(0);
  const [said, setSaid] = useState("");

  useEffect(() => {
    if (!text.trim()) {
      setFound([]);
      setSaid("");
      return undefined;
    }
    const ending = new AbortController();
    const waiting = setTimeout(async () => {
      try {
        const answer = await ask(question("find", { q: text.trim() }), ending.signal);
        setFound(answer.found);
        setChosen(0);
        setSaid(answer.found.length ? "" : "nothing is called so");
      } catch (error) {
        if (error.name !== "AbortError") setSaid(error.message);
      }
    }, RESTS_MS);
    return () => {
      clearTimeout(waiting);
      ending.abort();
    };
  }, [text]);

  function open(place) {
    setText("");
    field.current.blur();
    go(placeHref(place));
  }

  function press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) setChosen((chosen + step + found.length) % found.length);
    else if (event.key === "Enter" && found[chosen]) open(found[chosen].where);
    else if (event.key === "Escape") {
      setText("");
      field.current.blur();
    } else return;
    event.preventDefault();
  }

  const isOpen = found.length > 0;
  return html`<div class="search" role="search">
    <input ref=${field} type="text" role="combobox" aria-label="Search hosts, NICs, switches, links, jobs" placeholder="Search  /" spellcheck="false" autocomplete="off"
      aria-expanded=${isOpen} aria-controls=${isOpen ? "found" : undefined} aria-autocomplete="list" aria-activedescendant=${isOpen ? `found-${chosen}` : undefined}
      value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${press} onBlur=${() => setText("")} />
    ${isOpen && html`<ul id="found" role="listbox" aria-label="Found">
      ${found.map((each, i) => html`<li key=${i} id=${`found-${i}`} role="option" aria-selected=${i === chosen}
        onMouseDown=${(event) => {
          event.preventDefault();
          open(each.where);
        }}>${each.label} <span class="dim">${each.kind}</span></li>`)}
    </ul>`}
    ${said && html`<p class="said" role="status">${said}</p>`}
  </div>`;
}
