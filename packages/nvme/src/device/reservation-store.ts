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
  return {
    kept,
    async write(text) {
      if (text === undefined) await rm(place, { force: true });
      else await replaceWhole(place, text);
      // The name survives a loss of power when the folder does.
      const folder = await open(dirname(place));
      await folder.sync().finally(() => folder.close());
    },
  };
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
