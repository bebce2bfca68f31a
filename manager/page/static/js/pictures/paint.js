/** A matrix of codes as pixels. No document, no state: numbers in, an `ImageData` full of numbers out. */

const HATCH = 5;

/**
 * Paint the part of a matrix that is seen.
 * @param {Uint32Array} pixels of the picture, `width` times `height`
 * @param {{width: number, height: number, left: number, top: number, cell: number}} view in device pixels
 * @param {{codes: Uint8Array, rows: number, columns: number}} matrix rows are sources
 * @param {{classes: Uint32Array, paper: number, hatch: number}} palette colour of each code, and of what is not probed
 */
export function paint(pixels, view, matrix, palette) {
  const columnAt = cellsAlong(view.width, view.left, view.cell, matrix.columns);
  const rowAt = cellsAlong(view.height, view.top, view.cell, matrix.rows);
  for (let y = 0, at = 0; y < view.height; y += 1) {
    const row = rowAt[y];
    for (let x = 0; x < view.width; x += 1, at += 1) {
      const column = columnAt[x];
      if (row < 0 || column < 0) {
        pixels[at] = palette.paper;
        continue;
      }
      const code = matrix.codes[row * matrix.columns + column];
      if (code) pixels[at] = palette.classes[code];
      else pixels[at] = (x + view.left + y + view.top) % HATCH ? palette.paper : palette.hatch;
    }
  }
}

/** Which cell each pixel is in; -1 outside and in the gaps that large cells have. */
function cellsAlong(length, offset, cell, most) {
  const gap = cell >= 8 ? 1 : 0;
  return Int32Array.from({ length }, (_, i) => {
    const at = Math.floor((i + offset) / cell);
    const isGap = gap && (i + offset) % cell >= cell - gap;
    return at < most && !isGap ? at : -1;
  });
}

/** `#rrggbb` or `rgb(r, g, b)` as a pixel of `ImageData` on this machine. */
export function pixel(colour) {
  const [r, g, b] = colour.startsWith("#")
    ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
    : colour.match(/[\d.]+/g).map(Number);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
