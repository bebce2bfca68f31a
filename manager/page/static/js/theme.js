/** Dark or light: as the system has it, or as was chosen here. */
import { Store } from "./store.js";

const KEY = "cwdp-theme";
const CHOICES = ["system", "light", "dark"];

/** `system`, `light` or `dark`. */
export const theme = new Store(CHOICES.includes(stored()) ? stored() : "system");

/** Rises when colours have changed, for what draws by itself. */
export const shade = new Store(0);

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Follow the choice from now on. */
export function start() {
  apply();
  theme.follow(apply);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shade.set(shade.value + 1));
}

/** Go on to the next choice. */
export function next() {
  theme.set(CHOICES[(CHOICES.indexOf(theme.value) + 1) % CHOICES.length]);
  try {
    localStorage.setItem(KEY, theme.value);
  } catch {
    // A browser that keeps nothing shows the choice all the same.
  }
}

function apply() {
  document.documentElement.dataset.theme = theme.value;
  shade.set(shade.value + 1);
}

/** The colour that a variable of the style sheet has now, as the browser computes it. */
export function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
