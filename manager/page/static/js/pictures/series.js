/** Values over time, by uPlot, with events as markers and the shared cursor; the values at the cursor stand below. */
import uPlot from "../../vendor/uPlot.mjs";
import { cursor, point } from "../cursor.js";
import { html, useEffect, useLayoutEffect, useRef } from "../h.js";
import { href } from "../routes.js";
import { useStore } from "../store.js";
import { ink, shade } from "../theme.js";
import { clock, day, stamp, wholeStamp } from "../time.js";
import { Details } from "../parts/details.js";
import { Table } from "../parts/table.js";

const HEIGHT = 168;
const ROWS = 60;

/**
 * @param id of its table, in the address
 * @param label what the picture shows
 * @param times seconds since 1970, ascending
 * @param lines each `{label, values, ink, dash, isDots}`; null for what is not known
 * @param format how a value is written
 * @param least how much the axis shows at least
 * @param markers times of events
 * @param span the first and the last time that are shown, for charts that are to have one axis; else those of the values
 * @param empty what is said where there is nothing to show
 */
export function Series({ id, label, times, lines, format, least, markers = [], span, empty = "Nothing is kept of this span yet." }) {
  const box = useRef();
  const plot = useRef(null);
  const latest = useRef({});
  latest.current = { markers, span };
  const shades = useStore(shade);
  const isEmpty = times.length < 2;

  useLayoutEffect(() => {
    if (isEmpty) return undefined;
    const made = new uPlot(options(box.current.clientWidth, lines, format, least, latest), data(times, lines), box.current);
    plot.current = made;
    const watch = new ResizeObserver(([entry]) => made.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT }));
    watch.observe(box.current);
    const unfollow = cursor.follow((timeS) => place(made, timeS));
    place(made, cursor.value);
    return () => {
      unfollow();
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shades, isEmpty, lines.map((line) => line.label).join()]);

  useEffect(() => {
    plot.current?.setData(data(times, lines));
    if (plot.current) place(plot.current, cursor.value);
  }, [times, lines, markers]);

  return html`<figure class="series">
    <figcaption>${label}</figcaption>
    ${isEmpty
      ? html`<p class="empty">${empty}</p>`
      : html`<div ref=${box} class="chart" role="application" tabindex="0" aria-label=${`${label}: left and right move the time cursor`}
          onKeyDown=${(event) => press(event, times)}></div>
        <${Readout} times=${times} lines=${lines} format=${format} />
        <${Values} id=${id} label=${label} times=${times} lines=${lines} format=${format} />`}
  </figure>`;
}

function data(times, lines) {
  return [times, ...lines.map((line) => line.values)];
}

function options(width, lines, format, least, latest) {
  const times = { values: (_, ticks) => ticks.map((timeS) => tickWords(timeS, ticks)) };
  const axis = { stroke: ink("--dim"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") }, font: "11px system-ui" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true, range: (_, from, to) => latest.current.span ?? [from, to] }, y: { range: (_, __, most) => [0, Math.max(least, (most ?? 0) * 1.08)] } },
    axes: [{ ...axis, ...times }, { ...axis, size: 84, values: (_, ticks) => ticks.map(format) }],
    series: [{}, ...lines.map(drawn)],
    hooks: {
      draw: [(made) => drawMarkers(made, latest.current.markers)],
      setCursor: [(made) => told(made)],
    },
  };
}

/** How a line is drawn: values that stand alone are dots, as no line leads to them. */
function drawn({ label, ink: name, dash, isDots }) {
  const stroke = ink(name);
  if (isDots) return { label, stroke, width: 0, points: { show: true, size: 4, width: 0, fill: stroke } };
  return { label, stroke, width: 1.6, dash, points: { show: false } };
}

function tickWords(timeS, ticks) {
  if (ticks.at(-1) - ticks[0] > 2 * 86400) return day(timeS).slice(5);
  return ticks[1] - ticks[0] < 60 ? clock(timeS) : clock(timeS).slice(0, 5);
}

/** Only what the pointer does is told to others; placing it is not. */
function told(made) {
  if (made.cursor.event && made.cursor.left >= 0) point(made.posToVal(made.cursor.left, "x"));
}

function place(made, timeS) {
  const isSeen = timeS !== null && timeS >= made.scales.x.min && timeS <= made.scales.x.max;
  if (made.cursor.event) made.cursor.event = null;
  made.setCursor(isSeen ? { left: made.valToPos(timeS, "x"), top: 0 } : { left: -10, top: -10 }, false);
}

function drawMarkers(made, markers) {
  const { ctx, bbox } = made;
  ctx.save();
  ctx.strokeStyle = ink("--warning");
  ctx.fillStyle = ink("--warning");
  ctx.setLineDash([2, 3]);
  for (const timeS of markers) {
    if (timeS < made.scales.x.min || timeS > made.scales.x.max) continue;
    const x = Math.round(made.valToPos(timeS, "x", true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(x - 4, bbox.top);
    ctx.lineTo(x + 4, bbox.top);
    ctx.lineTo(x, bbox.top + 7);
    ctx.fill();
  }
  ctx.restore();
}

function press(event, times) {
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  const here = cursor.value === null ? times.length : nearest(times, cursor.value) + step;
  point(times[Math.max(0, Math.min(times.length - 1, here))]);
  event.preventDefault();
}

function nearest(times, timeS) {
  const after = times.findIndex((each) => each >= timeS);
  if (after <= 0) return after < 0 ? times.length - 1 : 0;
  return timeS - times[after - 1] < times[after] - timeS ? after - 1 : after;
}

/** The last time of which anything is known. */
function newest(times, lines) {
  const known = times.findLastIndex((_, i) => lines.some((line) => line.values[i] !== null));
  return known < 0 ? times.length - 1 : known;
}

function Readout({ times, lines, format }) {
  const timeS = useStore(cursor);
  const i = timeS === null ? newest(times, lines) : nearest(times, timeS);
  return html`<p class="values">
    <strong>${stamp(times[i])}</strong>
    ${lines.map((line) => html`<span key=${line.label}><svg class="key" viewBox="0 0 20 4" aria-hidden="true"><line x2="20" y1="2" y2="2" stroke=${`var(${line.ink})`} stroke-width="2.4" stroke-dasharray=${(line.dash ?? []).join(" ")} /></svg>${line.label} <b>${format(line.values[i])}</b></span>`)}
    <a href=${href("fleet", {}, times[i].toFixed(1))}>the fabric then</a>
  </p>`;
}

function Values({ id, label, times, lines, format }) {
  const from = Math.max(0, times.length - ROWS);
  const rows = times.slice(from).map((timeS, i) => ({ timeS, values: lines.map((line) => line.values[from + i]) })).reverse();
  const columns = [
    { name: "time", show: (row) => wholeStamp(row.timeS), value: (row) => row.timeS },
    ...lines.map((line, i) => ({ name: line.label, isNumber: true, show: (row) => format(row.values[i]), value: (row) => row.values[i] })),
  ];
  return html`<${Details} id=${id} summary="as a table"><${Table} id=${id} label=${label} columns=${columns} rows=${rows} /><//>`;
}
