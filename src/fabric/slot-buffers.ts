import type { Port } from "./port.ts";

/** One Buffer a send slot, made once: an encoder hangs its DataView on it. */
const buffers = new WeakMap<Port, Buffer[]>();

/** The memory of the slot at an offset of the slab, as a Buffer that stays the same. */
export function slotBuffer(port: Port, slot: number): Buffer {
  let all = buffers.get(port);
  if (all === undefined) {
    all = [];
    buffers.set(port, all);
  }
  const index = slot / port.slotBytes;
  const buffer = all[index] ?? port.slab.subarray(slot, slot + port.slotBytes);
  all[index] = buffer;
  return buffer;
}
