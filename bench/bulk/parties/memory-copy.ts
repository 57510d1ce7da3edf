import { cpuUs } from "../../echo/usage.ts";
import type { Driver } from "../party.ts";
import { mostSlots, Slots } from "../slots.ts";

/** How many copies go between two looks at the clock, at most; and about how many bytes. */
const mostPerLook = 64;
const bytesPerLook = 1 << 20;

/**
 * Copies within this process: what no way between two processes can beat. Ways: `set` (of typed arrays) and `copy` (of
 * Buffers).
 */
export async function open(): Promise<Driver> {
  let from = new Slots(0);
  let to = new Slots(0);

  return {
    async prepare(bytes, lanes) {
      from = new Slots(bytes, lanes);
      to = new Slots(bytes, lanes);
      from.fill(1);
      for (let lane = 0; lane < from.count; lane++) to.slot(lane).set(from.slot(lane));
      to.verify(1, "memory copy");
    },

    async measure(way, inFlight, durationMs) {
      const lanes = Array.from({ length: Math.min(inFlight, mostSlots) }, (_, lane) => {
        const [source, target] = [from.slot(lane), to.slot(lane)].map((slot) =>
          Buffer.from(slot.buffer, slot.byteOffset, slot.byteLength),
        ) as [Buffer, Buffer];
        return way === "set" ? () => target.set(source) : () => source.copy(target);
      });
      const perLook = Math.max(1, Math.min(mostPerLook, Math.floor(bytesPerLook / from.bytes)));
      const started = performance.now();
      let transfers = 0;
      do {
        for (let count = 0; count < perLook; count++) lanes[transfers++ % lanes.length]?.();
      } while (performance.now() - started < durationMs);
      return { transfers, elapsedMs: performance.now() - started };
    },

    address: async () => "",
    cpuUs: async () => cpuUs(),
    async close() {},
  };
}
