/** Five classes of cividis, which people see alike whatever colours they tell apart; each has a symbol too. */
import { METRICS } from "../words.js";

/** Cividis at 0, 1/4, 1/2, 3/4 and 1. */
export const COLOURS = ["#00224e", "#434e6c", "#7d7c78", "#bcaf6f", "#fee838"];

/** What is drawn into cells of each class where they are large enough. */
export const SYMBOLS = ["", "·", "–", "+", "◆"];

/** Of a symbol on its colour. */
export const INKS = ["#ffffff", "#ffffff", "#000000", "#000000", "#000000"];

const FROM = {
  spread: [10e3, 30e3, 100e3, 1e6],
  queue: [10e3, 30e3, 100e3, 1e6],
  p50: [10e3, 20e3, 50e3, 200e3],
  loss: [1e-4, 1e-3, 1e-2, 1e-1],
  share: [0.2, 0.5, 0.8, 0.95],
};
const OF_LARGEST = [0.05, 0.2, 0.5, 0.8];

/**
 * Where the upper four classes of a metric begin.
 * @param {string} metric
 * @param {number} largest value that is shown, for metrics without classes of their own
 * @returns {number[]}
 */
export function bounds(metric, largest = 0) {
  return FROM[metric] ?? OF_LARGEST.map((part) => part * largest);
}

/** The class of a value, 0 to 4; -1 for what is not known. */
export function classOf(value, from) {
  if (value === null || value === undefined || !Number.isFinite(value)) return -1;
  return from.filter((bound) => value >= bound && bound > 0).length;
}

/** What each class is called: `below 10 µs`, `10 µs to 30 µs`, `1 ms and more`. */
export function classWords(metric, from) {
  const { format } = METRICS[metric] ?? METRICS[{ queue: "spread", share: "loss" }[metric]];
  const words = from.map((bound) => format(bound).replace(/\.0+(?= )/, ""));
  return [`below ${words[0]}`, ...words.slice(1).map((word, i) => `${words[i]} to ${word}`), `${words.at(-1)} and more`];
}

/**
 * The value that a code of the manager stands for: null where it was not probed, 0 below the lowest.
 * @param {{lowest: number, ratio: number}} scale
 */
export function decoded(code, { lowest, ratio }) {
  if (code === 0) return null;
  return code === 1 ? 0 : lowest * ratio ** (code - 2);
}

/** The bytes of a base64 text. */
export function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
