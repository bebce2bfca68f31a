/** One time cursor for all charts; the address keeps where it rests. */
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
  const at = Number(route.value.params.t ?? Number.NaN);
  return Number.isFinite(at) ? at : null;
}

route.follow(() => {
  clearTimeout(waiting);
  cursor.set(named());
});
