/** How wide an element is, for pictures that fill it. */
import { useLayoutEffect, useState } from "./h.js";

/** The width of the element that `box` refers to, in whole pixels; 0 before it is known. */
export function useWidth(box) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(box.current);
    setWidth(box.current.clientWidth);
    return () => watch.disconnect();
  }, []);
  return width;
}
