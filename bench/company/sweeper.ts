import { readFileSync } from "node:fs";
import type { Party } from "../suite/child.ts";

/** How long it sweeps and waits before it looks whether it is to end. */
const stretchMs = 20;
/** Between two sweeps: a few calls come through, and the next sweep finds them in the caches. */
const pauseMs = 0.1;

/** A process that writes to more memory than a core's caches have room for, waits a little, and does it again. */
export async function open(): Promise<Party> {
  const memory = new Int32Array((2 * cacheBytes()) / Int32Array.BYTES_PER_ELEMENT);
  const line = 64 / Int32Array.BYTES_PER_ELEMENT;
  const bell = new Int32Array(new SharedArrayBuffer(4));
  let isOver = false;
  const sweep = () => {
    const until = performance.now() + stretchMs;
    while (performance.now() < until) {
      for (let at = 0; at < memory.length; at += line) memory[at] = (memory[at] ?? 0) + 1;
      Atomics.wait(bell, 0, 0, pauseMs);
    }
    if (!isOver) setImmediate(sweep);
  };
  setImmediate(sweep);
  return {
    async close() {
      isOver = true;
    },
  };
}

/** The second level of a core's caches, which no other core shares. */
function cacheBytes(): number {
  try {
    const size = readFileSync("/sys/devices/system/cpu/cpu0/cache/index2/size", "utf8");
    return Number.parseInt(size, 10) * (size.includes("M") ? 1 << 20 : 1 << 10);
  } catch {
    // Some virtual machines do not say. Most cores have less.
    return 2 << 20;
  }
}
