/** Times and durations as people read them. Times are those of the viewer's zone. */

const DAY_S = 86400;

const two = (number) => String(number).padStart(2, "0");

/** `2026-11-22`, of seconds since 1970. */
export function day(timeS) {
  const date = new Date(timeS * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** `17:40:20`. */
export function clock(timeS) {
  const date = new Date(timeS * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** `2026-11-22 17:40:20`, or the clock alone where it is today. */
export function stamp(timeS) {
  if (!isKnown(timeS)) return "–";
  return day(timeS) === day(Date.now() / 1000) ? clock(timeS) : `${day(timeS)} ${clock(timeS)}`;
}

/** `2026-11-22 17:40:20`, always whole. */
export function wholeStamp(timeS) {
  return isKnown(timeS) ? `${day(timeS)} ${clock(timeS)}` : "–";
}

/** `40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`. */
export function duration(seconds) {
  if (!isKnown(seconds)) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${two(minutes % 60)} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** `12 min ago`. */
export function ago(timeS, nowS = Date.now() / 1000) {
  return isKnown(timeS) ? `${duration(Math.max(0, nowS - timeS))} ago` : "–";
}

/** Seconds since 1970 of what the address names, which may be before now. */
export function instant(at, nowS = Date.now() / 1000) {
  if (at === undefined) return nowS;
  return at.startsWith("-") ? nowS + Number(at) : Number(at);
}

/** The `since` and `until` of a question about the day before an instant that the address names, or before now. */
export function dayBefore(at) {
  return at === undefined ? { since: -DAY_S } : { since: Number(at) - DAY_S, until: at };
}

function isKnown(number) {
  return number !== null && number !== undefined && Number.isFinite(number);
}
