/** Tables that sort by their heads, scroll by themselves and are walked through by the arrow keys. */
import { html } from "../h.js";
import { change, route } from "../routes.js";
import { useStore } from "../store.js";

/**
 * @param id names the table in the address, which keeps its sort order
 * @param label what it lists
 * @param columns each `{name, show(row), value(row)?, isNumber?, isText?, isWrapped?, title?}`; those with `value` can be sorted by
 * @param rows what it lists
 * @param empty what is said where there are none
 * @param below what stands below a row over its whole width, if anything
 */
export function Table({ id, label, columns, rows, empty = "none", below = () => null }) {
  const order = useStore(route).params[`sort-${id}`];
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  const shown = sorted(rows, columns, order);
  return html`<div class="scroll" role="group" aria-label=${label} tabindex="0" onKeyDown=${walk}>
    <table>
      <caption class="unseen">${label}</caption>
      <thead><tr>${columns.map((column) => html`<${Head} key=${column.name} id=${id} column=${column} order=${order} />`)}</tr></thead>
      <tbody>${shown.map((row, i) => html`<${Row} key=${row.key ?? i} columns=${columns} of=${row} below=${below(row)} />`)}</tbody>
    </table>
  </div>`;
}

function Row({ columns, of, below }) {
  const style = (column) => (column.isNumber ? "number" : column.isText ? "text" : column.isWrapped ? "wrapped" : "");
  return html`
    <tr>${columns.map((column) => html`<td key=${column.name} class=${style(column)}>${column.show(of)}</td>`)}</tr>
    ${below && html`<tr class="below"><td colspan=${columns.length}>${below}</td></tr>`}`;
}

function Head({ id, column, order }) {
  const style = column.isNumber ? "number" : "";
  if (!column.value) return html`<th scope="col" class=${style}>${column.name}</th>`;
  const isUp = order === column.name;
  const isDown = order === `-${column.name}`;
  const next = isDown || (!isUp && !column.isNumber) ? column.name : `-${column.name}`;
  const sort = isUp ? "ascending" : isDown ? "descending" : undefined;
  return html`<th scope="col" class=${style} aria-sort=${sort}>
    <button type="button" title=${column.title} onClick=${() => change({ [`sort-${id}`]: next })}>
      ${column.name}<span aria-hidden="true">${isUp ? " ↑" : isDown ? " ↓" : ""}</span>
    </button>
  </th>`;
}

function sorted(rows, columns, order) {
  const isDown = order?.startsWith("-");
  const column = columns.find((each) => each.name === (isDown ? order.slice(1) : order));
  if (!column?.value) return rows;
  const sign = isDown ? -1 : 1;
  return [...rows].sort((a, b) => compared(column.value(a), column.value(b), sign));
}

/** What is not known comes last either way. */
function compared(a, b, sign) {
  const isMissing = (value) => value === null || value === undefined;
  if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
  return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
}

const STEPS = { ArrowDown: 1, ArrowUp: -1 };

/** Arrows go from row to row, and through a table within one; Enter follows the link that has the focus by itself. */
function walk(event) {
  const step = STEPS[event.key];
  if (!step || event.defaultPrevented) return;
  const links = [...event.currentTarget.querySelectorAll("tbody tr")].map((row) => row.querySelector("a, button")).filter(Boolean);
  const here = links.findLastIndex((link) => link.closest("tr").contains(document.activeElement));
  const next = links[here < 0 ? 0 : here + step];
  if (!next) return;
  next.focus();
  event.preventDefault();
}
