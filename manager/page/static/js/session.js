/** Who looks. The manager may want a token first; it gives a cookie for it that no script can read. */
import { Store } from "./store.js";

/** The viewer's `name` and `role`, and whether they are `signed_in` by a token; null while that is not known. */
export const viewer = new Store(null);

/** Whether the manager wants a token. */
export const isOut = new Store(false);

const NO_ANSWER = { error: "The manager does not answer.", hint: "Try again in a moment." };

/** Find out who looks. */
export async function look() {
  const response = await fetch("v1/session").catch(() => null);
  if (response?.ok) viewer.set(await response.json());
  if (response) heed(response.status);
}

/** Take note of the status of an answer: who may not look is asked for a token. */
export function heed(status) {
  if (status !== 401 && status !== 403) return;
  viewer.set(null);
  isOut.set(true);
}

/**
 * Show a token.
 * @returns {Promise<{error: string, hint: string} | null>} why it is not taken
 */
export async function signIn(token) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch("v1/session", { method: "POST", headers, body: JSON.stringify({ token }) }).catch(() => null);
  if (!response) return NO_ANSWER;
  const told = await response.json().catch(() => NO_ANSWER);
  if (!response.ok) return told;
  await look();
  isOut.set(false);
  return null;
}

/** Have the token forgotten. */
export async function signOut() {
  await fetch("v1/session", { method: "DELETE" }).catch(() => null);
  await look();
}
