import type { Party } from "../suite/child.ts";

/** How long it computes before it looks whether it is to end. */
const stretchMs = 20;

/** A process that wants a processor all the time, as a computing neighbour does. */
export async function open(): Promise<Party> {
  let isOver = false;
  const burn = () => {
    const until = performance.now() + stretchMs;
    while (performance.now() < until);
    if (!isOver) setImmediate(burn);
  };
  setImmediate(burn);
  return {
    async close() {
      isOver = true;
    },
  };
}
