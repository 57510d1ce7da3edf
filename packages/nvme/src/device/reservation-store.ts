import { open, readFile, realpath, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { writeAtomically } from "./atomic-write.ts";
import type { ReservationStore } from "./block-device.ts";

/** Keeps the reservations of a file's disk in a file beside it, `FILE.reservations`. */
export async function reservationStoreOf(path: string): Promise<ReservationStore> {
  const place = `${await realpath(path)}.reservations`;
  const kept = await readFile(place, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  let former = kept;
  return {
    kept,
    async write(text) {
      // The name survives a loss of power when the folder does. It is opened first, since that can fail, too.
      const folder = await open(dirname(place));
      try {
        await replace(place, text);
        await folder.sync();
        former = text;
      } catch (error) {
        // The caller keeps the former state, so the next server has to find it.
        await replace(place, former).catch(() => {});
        throw error;
      } finally {
        await folder.close();
      }
    },
  };
}

async function replace(place: string, text: string | undefined): Promise<void> {
  if (text === undefined) await rm(place, { force: true });
  else await writeAtomically(place, text, 0o600, rename);
}
