import { randomUUID } from "node:crypto";
import { open, rm } from "node:fs/promises";

/**
 * Writes a text to a draft beside a file, and lets `put` make the draft that file. Nobody sees a part of the text, and a
 * loss of power does not cut it.
 *
 * @param put `link` where the file must be new, `rename` to replace one
 */
export async function writeAtomically(
  path: string,
  text: string,
  mode: number,
  put: (draft: string, path: string) => Promise<void>,
): Promise<void> {
  const draft = `${path}.${randomUUID()}`;
  try {
    const file = await open(draft, "wx", mode);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await put(draft, path);
  } finally {
    await rm(draft, { force: true });
  }
}
