/**
 * Counts who touches a buffer that somebody waits for: the pool may hand a slab out again only when no transfer and no region is at it any
 * more. Buffers nobody watches cost a look into a map.
 */
const watched = new WeakMap<ArrayBufferLike, Watched>();

interface Watched {
  users: number;
  readonly onUnused: () => void;
}

/** Calls `onUnused` each time the buffer's last user has gone. From its birth on, so that no user is missed. */
export function watchUsers(memory: ArrayBufferLike, onUnused: () => void): void {
  watched.set(memory, { users: 0, onUnused });
}

/** One more user of a buffer. Each call wants one `removeUser`. */
export function addUser(memory: ArrayBufferLike): void {
  const entry = watched.get(memory);
  if (entry !== undefined) entry.users++;
}

/** The user touches the buffer no longer: not from this thread, not by a posted transfer, not by a key that a peer holds. */
export function removeUser(memory: ArrayBufferLike): void {
  const entry = watched.get(memory);
  if (entry !== undefined && --entry.users === 0) entry.onUnused();
}

/** How many users a watched buffer has; 0 for any other. */
export function usersOf(memory: ArrayBufferLike): number {
  return watched.get(memory)?.users ?? 0;
}
