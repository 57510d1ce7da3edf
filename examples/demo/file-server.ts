import { implement } from "cinnabar";
import { BufferPool } from "./buffer-pool.ts";
import { BusyClock } from "./busy-clock.ts";
import type { Catalog } from "./catalog.ts";
import { Files } from "./contract.ts";
import type { FileReader } from "./file-reader.ts";
import { bytesOf, windowBytes } from "./window.ts";

/** Writes from here on are measured as bandwidth; below, what is measured is how long a small one takes. */
const bandwidthBytes = 256 << 10;
/** As many pulls at once: while some are being written to the client, others are being read from the disk. */
const buffers = 8;

/** The server's side of the contract, over one catalog and the reader of its files. */
export function serveFiles(catalog: Catalog, reader: FileReader) {
  const pool = new BufferPool(buffers, windowBytes);
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

    async pull({ pieces, into }, call) {
      const unknown = pieces.find(({ path }) => !catalog.byPath.has(path));
      if (unknown !== undefined) return call.fail("NotFound", { path: unknown.path });
      const bytes = bytesOf(pieces);
      if (bytes > windowBytes) return call.fail("TooMuch", { bytes, maxBytes: windowBytes });
      const buffer = await pool.take(call.signal);
      let landed: Promise<unknown> | undefined;
      try {
        const results = await reader.read(pieces, buffer);
        if (bytes > 0) {
          const put = call.put(buffer.subarray(0, bytes), into);
          landed = put.landed;
          await (bytes < bandwidthBytes ? put : clock.during(put, bytes));
        }
        return { results };
      } finally {
        await landed; // a write that was cancelled may still be under way
        pool.giveBack(buffer);
      }
    },

    meter() {
      return clock.read();
    },
  });
}
