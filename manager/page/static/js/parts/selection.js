/** Which cell of a heat map is selected: at once on the screen, and in the address where it rests. */
import { useEffect, useRef, useState } from "../h.js";
import { change, route } from "../routes.js";
import { useStore } from "../store.js";

const RESTS_MS = 250;

/** @returns {[[number, number] | null, function([number, number]): void]} row and column, and how to select others */
export function useSelection(rows, columns) {
  const { src, dst } = useStore(route).params;
  const [selected, setSelected] = useState(null);
  const waiting = useRef(0);
  useEffect(() => {
    const named = [rows.indexOf(src), columns.indexOf(dst)];
    if (named[0] >= 0 && named[1] >= 0) setSelected(named);
  }, [src, dst, rows.join(), columns.join()]);
  useEffect(() => () => clearTimeout(waiting.current), []);
  function select(cell) {
    setSelected(cell);
    clearTimeout(waiting.current);
    waiting.current = setTimeout(() => change({ src: rows[cell[0]], dst: columns[cell[1]] }), RESTS_MS);
  }
  return [selected, select];
}
