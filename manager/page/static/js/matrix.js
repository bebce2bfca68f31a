/** The leaf-by-leaf matrix: whole once, then only the cells that changed. */
import { ask, question } from "./api.js";
import { useEffect, useState } from "./h.js";
import { bytes } from "./pictures/classes.js";
import { route } from "./routes.js";
import { useStore } from "./store.js";
import { tick } from "./stream.js";

/**
 * The matrix of a metric as it is, or was at the instant that the address names.
 * @returns {{data: {codes: Uint8Array, names: string[], version: number} | null, error: Error | null}}
 */
export function useMatrix(metric) {
  const at = useStore(route).params.at;
  const [answer, setAnswer] = useState({ data: null, error: null, of: null });
  const of = question("matrix", { metric, at });
  useEffect(() => follow(metric, at, (part) => setAnswer({ data: null, error: null, ...part, of })), [of]);
  return answer.of === of ? answer : { data: null, error: null };
}

function follow(metric, at, tell) {
  const ending = new AbortController();
  let known = null;
  let isAsking = false;

  async function again() {
    if (isAsking) return;
    isAsking = true;
    try {
      known = applied(known, await ask(question("matrix", { metric, at, from: known?.version }), ending.signal));
      tell({ data: known });
    } catch (error) {
      if (ending.signal.aborted) return;
      if (error.status !== 0) known = null;
      if (error.status !== 0 || !known) tell({ error });
    }
    isAsking = false;
  }

  const unfollow = tick.follow((newest) => {
    if (!known || (at === undefined && newest.versions?.matrix !== known.version)) again();
  });
  again();
  return () => {
    unfollow();
    ending.abort();
  };
}

/** A newer matrix from the last and what the manager sent: the whole, or some cells. */
export function applied(known, sent) {
  if (sent.cells === undefined) return { ...sent, codes: bytes(sent.codes) };
  const codes = known.codes.slice();
  const changed = bytes(sent.codes);
  sent.cells.forEach((cell, i) => {
    codes[cell] = changed[i];
  });
  return { ...known, ...sent, codes, worst: sent.worst ?? known.worst };
}
