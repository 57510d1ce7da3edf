/** What hears of a signal's abort. */
export interface Abortable {
  onAbort(reason: unknown): void;
}

/** The open calls of each signal. A signal is often shared by many calls, and a listener apiece costs more than a small call does. */
const watched = new WeakMap<AbortSignal, Set<Abortable>>();

/**
 * Calls `item.onAbort` when the signal aborts, until `unwatchAbort`. One listener serves all calls of a signal; it stays with the signal, which
 * holds nothing by it but an empty set.
 */
export function watchAbort(signal: AbortSignal, item: Abortable): void {
  let items = watched.get(signal);
  if (items === undefined) {
    items = new Set();
    watched.set(signal, items);
    const all = items;
    const fire = () => {
      for (const open of [...all]) open.onAbort(signal.reason);
    };
    signal.addEventListener("abort", fire, { once: true });
  }
  items.add(item);
}

export function unwatchAbort(signal: AbortSignal, item: Abortable): void {
  watched.get(signal)?.delete(item);
}
