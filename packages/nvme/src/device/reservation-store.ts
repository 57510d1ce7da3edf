import { randomUUID } from "node:crypto";
import { open, readFile, realpath, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
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
  else await replaceWhole(place, text);
}

/** Nobody sees a part of the text, and a loss of power leaves the former one or this one. */
async function replaceWhole(place: string, text: string): Promise<void> {
  const draft = `${place}.${randomUUID()}`;
  try {
    const file = await open(draft, "wx", 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, place);
  } finally {
    await rm(draft, { force: true });
  }
}
