import { fabricError } from "../../base/errors/fabric-error.ts";
import type { Port } from "../../fabric/port.ts";
import type { SealedPiece } from "../control/sealed-bulk.ts";
import { Scheduler } from "../scheduler.ts";
import { pieceBytes, type StagingPiece } from "./staging.ts";

/**
 * Reads the ciphertext of a piece into private memory, where it can be opened: memory that others can write must not be
 * opened, as it may change while its tag is checked.
 */
export function pullPiece(
  port: Port,
  address: number,
  { key, address: remote }: Pick<SealedPiece, "key" | "address">,
  own: StagingPiece,
  bytes: number,
): Promise<void> {
  let moved = 0;
  return new Promise((resolve, reject) => {
    Scheduler.of(port).start({
      op: "read",
      address,
      extents: [{ local: own.registered, offset: own.offset, bytes, key, remote }],
      // One chunk, as a piece is of no use before all of it is there. While it is opened, the next one is under way.
      pacing: { chunkBytes: Math.min(pieceBytes, port.maxTransferBytes), inFlight: 1 },
      listener: {
        // A read cannot be recalled, and its memory is given back when it has ended.
        stopped: () => false,
        onMoved(more) {
          moved += more;
        },
        onEnded(status) {
          if (moved === bytes) return resolve();
          const { provider } = port;
          const message = `ciphertext could not be read: ${moved} of ${bytes} bytes came`;
          reject(fabricError({ provider, op: "fi_read", code: status, message }));
        },
      },
    });
  });
}
