/** A value that others follow. */
import { useEffect, useState } from "./h.js";

export class Store {
  #followers = new Set();

  /** @param value what it holds at first */
  constructor(value) {
    this.value = value;
  }

  /** Hold another value and tell who follows. */
  set(value) {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const follower of [...this.#followers]) follower(value);
  }

  /** Call `follower` with each new value; returns what ends that. */
  follow(follower) {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }
}

/** The value of a store, for a component that is drawn again when it changes. */
export function useStore(store) {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    setValue(store.value);
    return store.follow(setValue);
  }, [store]);
  return value;
}
