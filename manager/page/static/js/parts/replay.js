/** The fabric as it was: a slider over what history keeps, and the way back to now. */
import { useJson } from "../api.js";
import { html, useEffect, useRef, useState } from "../h.js";
import { goTo, step } from "../keys.js";
import { change, route } from "../routes.js";
import { useStore } from "../store.js";
import { connection } from "../stream.js";
import { ago, clock, day, instant, wholeStamp } from "../time.js";

const RANGES = { "1h": 3600, "24h": 86400, "14d": 1209600 };
const RESTS_MS = 120;

/** The bar at the foot of every page. */
export function Replay() {
  const { params } = useStore(route);
  const span = useJson("span", {}, { everyS: 30, ofNow: true });
  const nowS = useClock();
  const isPast = params.at !== undefined;
  const atS = instant(params.at, nowS);
  const range = RANGES[params.range] ? params.range : covering(nowS - atS);
  const sinceS = Math.min(Math.max(nowS - RANGES[range], beginning(span.data) ?? nowS - RANGES[range]), nowS - 60);
  const isOutside = isPast && (atS < sinceS || atS > nowS);
  return html`<footer class=${isPast ? "replay past" : "replay"} aria-label="Replay">
    <p class="when" role="status">${isPast ? html`<strong>As it was</strong> ${wholeStamp(atS)} <span class="dim">${ago(atS, nowS)}</span>` : html`<${Now} nowS=${nowS} />`}</p>
    <${Slider} sinceS=${sinceS} nowS=${nowS} atS=${Math.max(sinceS, Math.min(nowS, atS))} isOutside=${isOutside} />
    <div class="tools">
      <select aria-label="How much the slider spans" value=${range} onChange=${(event) => change({ range: event.target.value })}>
        ${Object.keys(RANGES).map((name) => html`<option key=${name} value=${name}>${name.replace(/(?=[hd])/, " ")}</option>`)}
      </select>
      ${[[-3600, "−1 h"], [-60, "−1 min"], [-10, "−10 s"], [10, "+10 s"], [60, "+1 min"]].map(([by, word]) => html`<button key=${word} type="button" class=${Math.abs(by) < 60 ? "fine" : ""} disabled=${by > 0 && !isPast} onClick=${() => step(by)}>${word}</button>`)}
      <${When} atS=${atS} isPast=${isPast} />
      <button type="button" class="live" aria-pressed=${!isPast} onClick=${() => goTo(null)}>Live</button>
    </div>
  </footer>`;
}

/** The shortest range in which a time so long ago is seen. */
function covering(agoS) {
  return Object.keys(RANGES).find((name) => RANGES[name] >= agoS) ?? Object.keys(RANGES).at(-1);
}

const WORDS = { connecting: "connecting …", live: "live", stale: "stale", no_manager: "no manager", paused: "paused" };

function Now({ nowS }) {
  const state = useStore(connection);
  return html`<strong class=${`pulse ${state}`}>${WORDS[state]}</strong> ${clock(nowS)} <span class="dim">${day(nowS)}</span>`;
}

function useClock() {
  const [nowS, setNowS] = useState(Date.now() / 1000);
  useEffect(() => {
    const every = setInterval(() => document.hidden || setNowS(Date.now() / 1000), 1000);
    return () => clearInterval(every);
  }, []);
  return nowS;
}

/** When history begins, whatever of it goes back the farthest. */
function beginning(span) {
  if (!span) return null;
  const starts = [span.links?.[0], span.pairs?.[0], span.fabric_since_s].filter(Number.isFinite);
  return starts.length ? Math.min(...starts) : null;
}

function Slider({ sinceS, nowS, atS, isOutside }) {
  const [held, setHeld] = useState(null);
  const waiting = useRef(0);
  useEffect(() => () => clearTimeout(waiting.current), []);
  const shown = held ?? atS;
  function slid(event) {
    const timeS = Number(event.target.value);
    setHeld(timeS);
    clearTimeout(waiting.current);
    waiting.current = setTimeout(() => {
      setHeld(null);
      goTo(timeS >= nowS - 5 ? null : timeS, false);
    }, RESTS_MS);
  }
  return html`<div class="slider">
    <span class="dim">${wholeStamp(sinceS).slice(5, 16)}</span>
    <input type="range" aria-label="Time shown" aria-valuetext=${wholeStamp(shown)} min=${Math.ceil(sinceS)} max=${Math.floor(nowS)} step=${nowS - sinceS > 90000 ? 60 : 5} value=${Math.round(shown)} onInput=${slid} />
    <span class="dim">${held !== null ? wholeStamp(held) : isOutside ? "elsewhere" : "now"}</span>
  </div>`;
}

/** The instant as text, to be typed. */
function When({ atS, isPast }) {
  const chosen = (event) => {
    const timeS = new Date(event.target.value).getTime() / 1000;
    if (Number.isFinite(timeS)) goTo(timeS);
  };
  return html`<input type="datetime-local" step="1" aria-label="Go to a time" value=${isPast ? `${day(atS)}T${clock(atS)}` : ""} onChange=${chosen} />`;
}
