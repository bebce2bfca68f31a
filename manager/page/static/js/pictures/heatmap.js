/** A heat map: sources down, destinations across, a cell for each pair; what was not probed is hatched. */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../h.js";
import { change, route } from "../routes.js";
import { useStore } from "../store.js";
import { ink, shade } from "../theme.js";
import { useWidth } from "../width.js";
import { METRICS } from "../words.js";
import { Legend } from "../parts/legend.js";
import { COLOURS, INKS, SYMBOLS, bounds, classOf, decoded } from "./classes.js";
import { paint, pixel } from "./paint.js";

const CELLS = [2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40];
const LABELLED = 12;
const GUTTER = 112;
const LETTER = 6.6;
const HIGHEST = 640;

/**
 * @param label what the picture shows
 * @param rows names of the sources
 * @param columns names of the destinations
 * @param codes {Uint8Array} a code for each pair, row by row
 * @param scale {{lowest, ratio}} of the codes
 * @param metric a key of METRICS
 * @param selected {[number, number] | null} row and column
 * @param onSelect called with row and column
 * @param onOpen called with row and column, on Enter and on a click
 */
export function Heatmap({ label, rows, columns, codes, scale, metric, selected, onSelect, onOpen }) {
  const box = useRef();
  const canvas = useRef();
  const width = useWidth(box);
  const { zoom: named } = useStore(route).params;
  const chosen = CELLS.includes(Number(named)) ? Number(named) : null;
  const setCell = (size) => change({ zoom: size });
  const [seen, setSeen] = useState([0, 0]);
  const shades = useStore(shade);
  const names = useMemo(() => gutterFor([...rows, ...columns]), [rows, columns]);
  const cell = chosen ?? fitting(width, names, rows.length, columns.length);
  const gutter = cell >= LABELLED ? names : 0;
  const { values, largest } = useMemo(() => valuesOf(codes, scale), [codes, scale.lowest, scale.ratio]);
  const from = bounds(metric, largest);
  const room = [gutter + columns.length * cell, gutter + rows.length * cell];
  const height = Math.min(room[1], HIGHEST);

  useLayoutEffect(() => {
    if (width) draw(canvas.current, { width: Math.min(width, room[0]), height, cell, gutter, left: seen[0], top: seen[1] }, { rows, columns, codes, values, from, selected });
  }, [width, cell, codes, metric, scale, selected?.[0], selected?.[1], seen, shades, rows, columns]);

  useEffect(() => {
    if (selected) reveal(box.current, selected, cell, gutter);
  }, [selected?.[0], selected?.[1], cell, gutter]);

  const at = (event) => {
    const area = box.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - area.left + box.current.scrollLeft - gutter) / cell);
    const row = Math.floor((event.clientY - area.top + box.current.scrollTop - gutter) / cell);
    const isSeen = event.clientX - area.left >= gutter && event.clientY - area.top >= gutter;
    return isSeen && row < rows.length && column < columns.length ? [row, column] : null;
  };
  const zoom = (by) => setCell(CELLS[Math.max(0, Math.min(CELLS.length - 1, nearest(cell) + by))]);
  const pointed = (event, tell) => {
    const found = at(event);
    if (found) tell(found);
  };

  return html`<div class="heatmap">
    <div class="readout">
      <output aria-live="polite">${readout(rows, columns, values, selected, metric)}</output>
      <span class="tools">
        <button type="button" onClick=${() => zoom(-1)} aria-label="smaller cells">−</button>
        <button type="button" onClick=${() => zoom(1)} aria-label="larger cells">+</button>
        <button type="button" onClick=${() => setCell(null)} disabled=${chosen === null}>fit</button>
      </span>
    </div>
    <div ref=${box} class="map" role="application" tabindex="0" style=${{ maxHeight: `${HIGHEST}px` }}
      aria-label=${`${label}: arrow keys move, Enter opens, plus and minus zoom`}
      onScroll=${() => setSeen([box.current.scrollLeft, box.current.scrollTop])}
      onMouseMove=${(event) => pointed(event, onSelect)}
      onClick=${(event) => pointed(event, onOpen)}
      onKeyDown=${(event) => press(event, { rows, columns, selected, onSelect, onOpen, zoom })}>
      <div class="room" style=${{ width: `${room[0]}px`, height: `${room[1]}px` }}>
        <canvas ref=${canvas} aria-hidden="true"></canvas>
      </div>
    </div>
    <${Legend} metric=${metric} largest=${largest} hatched="not probed" />
  </div>`;
}

/** How much room the names need beside the cells. */
function gutterFor(names) {
  return Math.min(GUTTER, 12 + Math.ceil(LETTER * names.reduce((most, name) => Math.max(most, name.length), 0)));
}

/** The largest cells with which the whole is seen without scrolling. */
function fitting(width, names, rows, columns) {
  const fits = (cell) => {
    const gutter = cell >= LABELLED ? names : 0;
    return gutter + cell * columns <= width && gutter + cell * rows <= HIGHEST;
  };
  return CELLS.findLast(fits) ?? CELLS[0];
}

function nearest(cell) {
  return Math.max(0, CELLS.indexOf(cell));
}

function valuesOf(codes, scale) {
  const ofCode = Array.from({ length: 256 }, (_, code) => decoded(code, scale));
  let most = 1;
  for (const code of codes) if (code > most) most = code;
  return { values: { of: (i) => ofCode[codes[i]], ofCode }, largest: ofCode[most] };
}

function readout(rows, columns, values, selected, metric) {
  const { title, format, meaning } = METRICS[metric];
  if (!selected || selected[0] >= rows.length || selected[1] >= columns.length) return `${title}: ${meaning}. Rows are sources, columns destinations.`;
  const value = values.of(selected[0] * columns.length + selected[1]);
  return `${rows[selected[0]]} > ${columns[selected[1]]}: ${value === null ? "not probed" : format(value)}`;
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -1e6], End: [0, 1e6] };

function press(event, { rows, columns, selected, onSelect, onOpen, zoom }) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = STEPS[event.key];
  if (step) {
    const [row, column] = selected ?? [0, 0];
    const next = selected ? [row + step[0], column + step[1]] : [0, 0];
    onSelect([within(next[0], rows.length), within(next[1], columns.length)]);
  } else if (event.key === "Enter" && selected) onOpen(selected);
  else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1 : -1);
  else return;
  event.preventDefault();
}

function within(number, length) {
  return Math.max(0, Math.min(length - 1, number));
}

function reveal(box, [row, column], cell, gutter) {
  const along = (seen, size, at) => {
    if (at < seen) return at;
    return at + cell > seen + size - gutter ? at + cell - size + gutter : seen;
  };
  box.scrollLeft = along(box.scrollLeft, box.clientWidth, column * cell);
  box.scrollTop = along(box.scrollTop, box.clientHeight, row * cell);
}

function draw(canvas, view, picture) {
  const sharp = window.devicePixelRatio || 1;
  canvas.width = Math.round(view.width * sharp);
  canvas.height = Math.round(view.height * sharp);
  canvas.style.width = `${view.width}px`;
  canvas.style.height = `${view.height}px`;
  const pen = canvas.getContext("2d");
  const gutter = Math.round(view.gutter * sharp);
  const image = pen.createImageData(Math.max(1, canvas.width - gutter), Math.max(1, canvas.height - gutter));
  const paper = pixel(ink("--panel"));
  const classes = Uint32Array.from(picture.values.ofCode, (value) => pixel(COLOURS[Math.max(0, classOf(value, picture.from))]));
  paint(
    new Uint32Array(image.data.buffer),
    { width: image.width, height: image.height, left: Math.round(view.left * sharp), top: Math.round(view.top * sharp), cell: view.cell * sharp },
    { codes: picture.codes, rows: picture.rows.length, columns: picture.columns.length },
    { classes, paper, hatch: pixel(ink("--hatch")) },
  );
  pen.fillStyle = ink("--panel");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.putImageData(image, gutter, gutter);
  pen.scale(sharp, sharp);
  if (view.gutter) label(pen, view, picture);
  if (picture.selected) mark(pen, view, picture.selected);
}

function label(pen, view, { rows, columns, codes, values, from }) {
  const first = (offset) => Math.floor(offset / view.cell);
  const lastRow = Math.min(rows.length, Math.ceil((view.top + view.height) / view.cell));
  const lastColumn = Math.min(columns.length, Math.ceil((view.left + view.width) / view.cell));
  pen.textBaseline = "middle";
  pen.font = `${Math.min(12, view.cell - 1)}px ${getComputedStyle(document.body).fontFamily}`;
  symbols(pen, view, [first(view.top), lastRow, first(view.left), lastColumn], (row, column) => classOf(values.of(row * columns.length + column), from));
  pen.fillStyle = ink("--ink");
  pen.textAlign = "right";
  clipped(pen, [0, view.gutter, view.gutter, view.height], () => {
    for (let row = first(view.top); row < lastRow; row += 1) {
      pen.fillText(shortened(pen, rows[row], view.gutter - 8), view.gutter - 6, view.gutter + (row + 0.5) * view.cell - view.top);
    }
  });
  pen.textAlign = "left";
  clipped(pen, [view.gutter, 0, view.width, view.gutter], () => {
    for (let column = first(view.left); column < lastColumn; column += 1) {
      pen.save();
      pen.translate(view.gutter + (column + 0.5) * view.cell - view.left, view.gutter - 6);
      pen.rotate(-Math.PI / 2);
      pen.fillText(shortened(pen, columns[column], view.gutter - 8), 0, 0);
      pen.restore();
    }
  });
}

function symbols(pen, view, [row0, row1, column0, column1], classAt) {
  pen.textAlign = "center";
  clipped(pen, [view.gutter, view.gutter, view.width, view.height], () => {
    for (let row = row0; row < row1; row += 1) {
      for (let column = column0; column < column1; column += 1) {
        const at = classAt(row, column);
        if (at < 1) continue;
        pen.fillStyle = INKS[at];
        pen.fillText(SYMBOLS[at], view.gutter + (column + 0.5) * view.cell - view.left, view.gutter + (row + 0.5) * view.cell - view.top);
      }
    }
  });
}

function clipped(pen, area, work) {
  pen.save();
  pen.beginPath();
  pen.rect(...area);
  pen.clip();
  work();
  pen.restore();
}

function shortened(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = text.length - 1;
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}

function mark(pen, view, [row, column]) {
  const x = view.gutter + column * view.cell - view.left;
  const y = view.gutter + row * view.cell - view.top;
  const size = Math.max(view.cell, 5);
  clipped(pen, [view.gutter, view.gutter, view.width, view.height], () => {
    pen.lineWidth = 3;
    pen.strokeStyle = ink("--panel");
    pen.strokeRect(x - 1, y - 1, size + 1, size + 1);
    pen.lineWidth = 1.5;
    pen.strokeStyle = ink("--accent");
    pen.strokeRect(x - 1, y - 1, size + 1, size + 1);
  });
}
