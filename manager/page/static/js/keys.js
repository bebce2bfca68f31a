/** Keys that work on every page; tables and pictures have their own, which `?` names too. */
import { change, go, href, route, upHref } from "./routes.js";
import { instant } from "./time.js";

/** What `?` shows. */
export const KEYS = [
  ["/", "search"],
  ["?", "these keys"],
  ["Esc", "close, or go up: pair, leaf, Fleet"],
  ["arrows", "move in a heat map, a table, a chart"],
  ["Enter", "open what is selected"],
  ["+ −", "zoom the heat map"],
  ["Page up, Page down", "ten cells or values at once"],
  ["[ ]", "a minute back, a minute on"],
  ["l", "live"],
  ["f m j c e a", "Fleet, Map, Jobs, Clocks, Events, Audit"],
];

const PAGES = { f: "fleet", m: "map", j: "jobs", c: "clocks", e: "events", a: "audit" };

/**
 * Follow the keys from now on.
 * @param {{search: function(), help: function()}} open what `/` and `?` open
 * @returns {function()} what ends that
 */
export function start(open) {
  function follow(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (pressed(event.key, open)) event.preventDefault();
  }
  document.addEventListener("keydown", follow);
  return () => document.removeEventListener("keydown", follow);
}

function pressed(key, open) {
  if (key === "/") open.search();
  else if (key === "?") open.help();
  else if (key === "Escape") go(upHref(route.value));
  else if (key === "[" || key === "]") step(key === "[" ? -60 : 60);
  else if (key === "l") goTo(null);
  else if (PAGES[key]) go(href(PAGES[key]));
  else return false;
  return true;
}

/** Go so many seconds on or back; beyond now is live. */
export function step(seconds) {
  const nowS = Date.now() / 1000;
  const next = instant(route.value.params.at, nowS) + seconds;
  goTo(next >= nowS ? null : next);
}

/** Show another instant, or now; the time cursor comes along. */
export function goTo(timeS, push = true) {
  change({ at: timeS === null ? null : timeS.toFixed(0), t: null }, push);
}

function isTyping(element) {
  return element.matches?.("input:not([type=range]), textarea, select");
}
