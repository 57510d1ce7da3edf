import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/** Why a program cannot be run here; undefined if it can. `origin` says how to get it. */
export function lackOfProgram(name: string, origin: string): string | undefined {
  const isThere = (process.env.PATH ?? "").split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  return isThere ? undefined : `${name} is not installed; ${origin}`;
}
