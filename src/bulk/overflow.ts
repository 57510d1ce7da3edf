import type { Loan } from "../call/outgoing-call.ts";
import { access, type Port } from "../fabric/port.ts";
import type { Overflow } from "../wire/frame.ts";
import { pacingOf } from "./pacing.ts";
import { Scheduler } from "./scheduler.ts";

/**
 * Bodies that do not fit a message: the sender keeps the encoded body in registered memory of its own, the frame carries only where it lies,
 * the receiver pulls it by RMA. Users never see it.
 *
 * Each body is registered by itself and for its exact length, so the key a peer is handed opens that body and nothing used before it.
 */

/** Puts a copy of `bytes` where the peer behind `port` can pull it. The loan ends when the peer says so. */
export function offerBody(
  port: Port,
  bytes: Uint8Array,
): { readonly overflow: Overflow; readonly loan: Loan } {
  // msgpackr's buffer is reused by the next encode, hence the copy. A buffer of its own is also what makes it safe to let a slow peer read.
  const memory = new ArrayBuffer(bytes.byteLength);
  new Uint8Array(memory).set(bytes);
  const registered = port.register(memory, 0, memory.byteLength, access.remoteRead);
  let released = false;
  return {
    overflow: { key: registered.key, address: registered.base, bytes: memory.byteLength },
    loan: {
      bytes: memory.byteLength,
      release(onReleased) {
        if (released) return;
        released = true;
        port.deregister(registered.index, onReleased);
      },
    },
  };
}

/** A pulled body, or libfabric's error number; 0 for a pull that `stop` ended. */
export type Pulled = { readonly body: Buffer } | { readonly status: number };

/** Pulls a body into memory of its own, which the decoded value may keep views of. */
export async function pullBody(
  port: Port,
  address: number,
  overflow: Overflow,
  stop: () => boolean,
): Promise<Pulled> {
  const { key, address: remote, bytes } = overflow;
  const memory = new ArrayBuffer(bytes);
  const local = port.register(memory, 0, bytes, access.local);
  let moved = 0;
  return new Promise((resolve) => {
    Scheduler.of(port).start({
      op: "read",
      address,
      extents: [{ local, offset: 0, bytes, key, remote }],
      pacing: pacingOf(port),
      owner: {
        stopped: stop,
        onMoved(more) {
          moved += more;
        },
        onEnded(status) {
          port.deregister(local.index);
          resolve(moved === bytes ? { body: Buffer.from(memory) } : { status });
        },
      },
    });
  });
}
