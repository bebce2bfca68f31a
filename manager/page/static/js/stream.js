/** The manager's ticks, one a second, while this tab is seen: browsers allow six connections, and hidden tabs need none. */
import { isOut, look } from "./session.js";
import { Store } from "./store.js";

const STALE_MS = 5000;
const RETRY_MS = 1500;

/** The newest tick: the fleet in short; null before the first. */
export const tick = new Store(null);

/** `connecting`, `live`, `stale` (no tick for 5 s), `no_manager` (the stream is broken) or `paused` (hidden tab). */
export const connection = new Store("connecting");

let source = null;
let watch = 0;
let retry = 0;

/** Follow the manager from now on. */
export function start() {
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : open()));
  window.addEventListener("pagehide", pause);
  window.addEventListener("pageshow", () => document.hidden || open());
  isOut.follow((out) => (out ? pause() : open()));
  if (!document.hidden) open();
}

function open() {
  close();
  if (isOut.value) return;
  source = new EventSource("v1/stream");
  source.addEventListener("tick", (event) => {
    connection.set("live");
    expectNext();
    tick.set(JSON.parse(event.data));
  });
  source.addEventListener("bye", broken);
  source.addEventListener("error", broken);
  expectNext();
}

function expectNext() {
  clearTimeout(watch);
  watch = setTimeout(() => connection.set("stale"), STALE_MS);
}

function broken() {
  close();
  connection.set("no_manager");
  retry = setTimeout(open, RETRY_MS);
  look();
}

function pause() {
  close();
  connection.set("paused");
}

function close() {
  clearTimeout(watch);
  clearTimeout(retry);
  source?.close();
  source = null;
}
