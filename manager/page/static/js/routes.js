/** The address is the state: which page, of what, when, and how it is sorted and filtered. */
import { Store } from "./store.js";

/** Every page: its title, what its address must name, and the page above it. */
export const PAGES = {
  fleet: { title: "Fleet", needs: [], up: null },
  map: { title: "Map", needs: [], up: "fleet" },
  leaf: { title: "Leaf", needs: ["name"], up: "fleet" },
  link: { title: "Link", needs: ["a", "b"], up: "map" },
  qp: { title: "Queue pair", needs: ["host", "nic", "dst_addr", "qpn"], up: "fleet" },
  jobs: { title: "Jobs", needs: [], up: "fleet" },
  job: { title: "Job", needs: ["name"], up: "jobs" },
  iterations: { title: "Iterations", needs: ["name"], up: "jobs" },
  clocks: { title: "Clocks", needs: [], up: "fleet" },
  events: { title: "Events", needs: [], up: "fleet" },
  audit: { title: "Audit", needs: [], up: "fleet" },
  host: { title: "Host", needs: ["name"], up: "fleet" },
};

/**
 * Read an address.
 * @param {string} hash what stands behind the address, from `#` on
 * @returns {{page: string, params: Object<string, string>, trouble: string | null}}
 */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s, 2);
  const params = Object.fromEntries(new URLSearchParams(query));
  const page = path || "fleet";
  return { page, params, trouble: trouble(page, params) };
}

function trouble(page, params) {
  if (!Object.hasOwn(PAGES, page)) return `There is no page “${page}”.`;
  const missing = PAGES[page].needs.filter((name) => !params[name]);
  if (missing.length) return `This address does not say which ${PAGES[page].title.toLowerCase()}: ${missing.join(", ")} is missing.`;
  if (params.at !== undefined && !isTime(params.at)) return `“${params.at}” is no time.`;
  return null;
}

function isTime(text) {
  return /^-?\d+(\.\d+)?$/.test(text) && Math.abs(Number(text)) < 1e11;
}

/** The address of a page; it stays in the past, and the slider as long as it was, where the viewer is there. */
export function href(page, params = {}, at = route.value.params.at) {
  return address(page, { range: route.value.params.range, ...params, at });
}

function address(page, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `#/${page}${text && "?"}${text}`;
}

/** The address of a PLACE, as the manager names one. */
export function placeHref({ page, ...names }) {
  return href(page, names);
}

/** Go to a page, so that "back" leads here. */
export function go(next) {
  location.hash = next;
  follow();
}

/**
 * Change parts of the state on this page; null takes one away. Nothing is changed of a page that is being left.
 * @param {Object<string, string | number | null>} changes
 * @param {boolean} push whether "back" undoes it
 */
export function change(changes, push = false) {
  if (location.hash !== seen) return;
  const { page, params } = route.value;
  const { at, ...rest } = { ...params, ...changes };
  const next = href(page, rest, at);
  if (push) go(next);
  else {
    history.replaceState(null, "", next);
    route.set(here());
  }
}

/** The address of the page above; the same one without its peer or selection where there is one. */
export function upHref({ page, params }) {
  if (page === "leaf" && params.peer) return href("leaf", { name: params.name });
  return href(PAGES[page]?.up ?? "fleet");
}

/** The address that `route` is of. */
let seen = null;

export const route = new Store(here());

window.addEventListener("hashchange", follow);

function follow() {
  if (location.hash !== seen) route.set(here());
}

/** What the address names; a time before now becomes that instant, so that it stays the same. */
function here() {
  const { page, params, trouble: isBroken } = parse(location.hash);
  if (!isBroken && params.at?.startsWith("-")) {
    const { at, ...rest } = params;
    history.replaceState(null, "", address(page, { ...rest, at: (Date.now() / 1000 + Number(at)).toFixed(0) }));
  }
  seen = location.hash;
  return parse(seen);
}
