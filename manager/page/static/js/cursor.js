/** One time cursor for all charts: where it was moved to, which the address keeps, or at the instant that is shown. */
import { change, route } from "./routes.js";
import { Store } from "./store.js";

const RESTS_MS = 300;

/** Seconds since 1970, or null for none. */
export const cursor = new Store(named());

let waiting = 0;

/** Move it. */
export function point(timeS) {
  cursor.set(timeS);
  clearTimeout(waiting);
  const { page } = route.value;
  waiting = setTimeout(() => {
    if (route.value.page === page) change({ t: timeS === null ? null : timeS.toFixed(1) });
  }, RESTS_MS);
}

function named() {
  const { t, at } = route.value.params;
  const timeS = Number(t ?? at ?? Number.NaN);
  return Number.isFinite(timeS) ? timeS : null;
}

route.follow(() => {
  clearTimeout(waiting);
  cursor.set(named());
});
