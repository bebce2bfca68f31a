/** Questions to the manager. A component that asks one is drawn again with each newer answer. */
import { useEffect, useState } from "./h.js";
import { route } from "./routes.js";
import { heed } from "./session.js";
import { useStore } from "./store.js";
import { tick } from "./stream.js";

/** The manager's "no": what was wrong, and the next step. */
export class Refusal extends Error {
  constructor(message, hint, status) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

/** The path and query of a question; what is null or empty is not asked. */
export function question(path, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `v1/${path}${text && "?"}${text}`;
}

/** So long an answer is waited for, in seconds. */
const LONGEST_S = 15;

/**
 * Ask once.
 * @throws {Refusal} the manager refuses; status 0 where it does not answer, or not in time
 */
export async function ask(url, signal) {
  let response;
  let text;
  try {
    response = await fetch(url, { signal: AbortSignal.any([signal, AbortSignal.timeout(1000 * LONGEST_S)]) });
    text = await response.text();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Refusal("The manager does not answer.", "It is asked again by itself.", 0);
  }
  const body = parsed(text);
  if (response.ok) return body;
  heed(response.status);
  throw new Refusal(body.error ?? `The manager answered ${response.status}.`, body.hint ?? "", response.status);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

const NOTHING = { data: null, error: null, isOld: false };

/**
 * The answer to a question about the instant that the address names, or about now, and then again every `everyS` ticks.
 * The last answer stays while the same is asked of another instant.
 * @returns {{data: any, error: Refusal | null, isOld: boolean}}
 */
export function useJson(path, params = {}, { everyS = 2, ofNow = false } = {}) {
  const at = useStore(route).params.at;
  const what = question(path, params);
  const url = ofNow ? what : question(path, { ...params, at });
  const [answer, setAnswer] = useState({ ...NOTHING, what: null, url: null });
  useEffect(
    () => repeat(url, everyS, (part) => setAnswer((last) => ({ ...NOTHING, ...kept(last, what, part), ...part, what, url }))),
    [url],
  );
  return answer.what === what ? { ...answer, isOld: answer.url !== url } : NOTHING;
}

/** A manager that is away takes nothing off the screen. */
function kept(last, what, { error }) {
  return error?.status === 0 && last.what === what ? { data: last.data } : {};
}

function repeat(url, everyS, tell) {
  const ending = new AbortController();
  let isAsking = false;
  let waited = 0;
  let isSettled = false;

  async function again() {
    if (isAsking) return;
    isAsking = true;
    waited = 0;
    try {
      const data = await ask(url, ending.signal);
      isSettled = true;
      tell({ data });
    } catch (error) {
      if (ending.signal.aborted) return;
      isSettled = error.status !== 0;
      tell({ error });
    }
    isAsking = false;
  }

  const isPast = /[?&]at=/.test(url);
  const unfollow = tick.follow(() => {
    waited += 1;
    if (!isSettled || (!isPast && waited >= everyS)) again();
  });
  again();
  return () => {
    unfollow();
    ending.abort();
  };
}
