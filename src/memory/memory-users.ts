/**
 * Counts the users of a buffer: the pool may reuse a slab only when no transfer and no region uses it. A buffer that is
 * not watched costs one look-up.
 */
const watched = new WeakMap<ArrayBufferLike, Watched>();

interface Watched {
  users: number;
  readonly onUnused: () => void;
}

/**
 * Calls `onUnused` each time the last user of the buffer is gone. Call it when the buffer is new: it counts later users
 * only.
 */
export function watchUsers(memory: ArrayBufferLike, onUnused: () => void): void {
  watched.set(memory, { users: 0, onUnused });
}

/** Adds a user of a buffer. Each call needs one `removeUser`. */
export function addUser(memory: ArrayBufferLike): void {
  const entry = watched.get(memory);
  if (entry !== undefined) entry.users++;
}

/**
 * The user no longer touches the buffer: not from this thread, not by a posted transfer, not by the key of a peer.
 */
export function removeUser(memory: ArrayBufferLike): void {
  const entry = watched.get(memory);
  if (entry !== undefined && --entry.users === 0) entry.onUnused();
}

/** Adds a user of the views' buffers, until `release`. */
export function useAll(views: readonly ArrayBufferView[]): { release(): void } {
  for (const { buffer } of views) addUser(buffer);
  return {
    release() {
      for (const { buffer } of views) removeUser(buffer);
    },
  };
}

/** How many users a watched buffer has; 0 for other buffers. */
export function usersOf(memory: ArrayBufferLike): number {
  return watched.get(memory)?.users ?? 0;
}
