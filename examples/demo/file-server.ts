import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { implement } from "cinnabar";
import { BufferPool } from "./buffer-pool.ts";
import { BusyClock } from "./busy-clock.ts";
import type { Catalog } from "./catalog.ts";
import { Files } from "./contract.ts";
import { describe } from "./lifetime.ts";

/**
 * Bytes read from the disk at a time. Big enough to hide the cost of a transfer, small enough to stay in a processor's
 * cache.
 */
export const pieceBytes = 1 << 20;
/** Writes from here on are measured as bandwidth; below, what is measured is how long a small one takes. */
const bandwidthBytes = 256 << 10;
/** Two a pull: while one is being written to the client, the next is being read from the disk. */
const buffers = 16;

/** The server's side of the contract, over one catalog. */
export function serveFiles(catalog: Catalog) {
  const pool = new BufferPool(buffers / 2, 2 * pieceBytes);
  const clock = new BusyClock();

  return implement(Files, {
    list({ from, limit }) {
      const files = catalog.files.slice(from, from + limit).map(({ path, bytes }) => ({ path, bytes }));
      const next = from + files.length;
      return { files, next: next < catalog.files.length ? next : null };
    },

    stat({ path }, call) {
      const file = catalog.byPath.get(path);
      if (file === undefined) return call.fail("NotFound", { path });
      return { bytes: file.bytes, modifiedMs: file.modifiedMs };
    },

    async pull({ path, offset, length, into }, call) {
      if (!catalog.byPath.has(path)) return call.fail("NotFound", { path });
      const wanted = Math.min(length, into.byteLength);
      let file: FileHandle;
      try {
        file = await open(join(catalog.root, path));
      } catch (error) {
        return call.fail("Unreadable", { path, why: describe(error) });
      }
      const pair = await pool.take(call.signal);
      let putting: Promise<unknown> = Promise.resolve();
      try {
        let done = 0;
        let half = 0;
        let writes = 0;
        while (done < wanted) {
          const length = Math.min(pieceBytes, wanted - done);
          const piece = pair.subarray(half * pieceBytes, half * pieceBytes + length);
          const { bytesRead } = await file.read(piece, 0, length, offset + done);
          await putting;
          if (bytesRead === 0) break;
          const put = call.put(piece.subarray(0, bytesRead), into, { offset: done });
          putting = bytesRead < bandwidthBytes ? put : clock.during(put, bytesRead);
          putting.catch(() => {}); // awaited below; without this a failure in the meantime would be an unhandled one
          done += bytesRead;
          writes++;
          half = 1 - half;
        }
        await putting;
        return { bytes: done, writes };
      } finally {
        await putting.catch(() => {}); // the buffers are in use until then
        pool.giveBack(pair);
        await file.close();
      }
    },

    meter() {
      return clock.read();
    },
  });
}
