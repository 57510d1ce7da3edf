import { onPath, SetupError } from "./command.mjs";
import { aptGet, rootPrefix } from "./system-packages.mjs";

/**
 * Installs the programs that are missing where that may be done, as the set-up does.
 *
 * @param {string} purpose what cannot be done without them, as "libfabric cannot be built here"
 * @param {Readonly<Record<string, string>>} programs the Debian package that brings each program
 */
export async function installPrograms(purpose, programs) {
  const missing = Object.entries(programs).filter(([program]) => onPath(program) === undefined);
  if (missing.length === 0) return;
  const packages = [...new Set(missing.map(([, name]) => name))];
  const byHand = `sudo apt-get install ${packages.join(" ")}`;
  const advice = `Run this, then the command again:\n    ${byHand}`;
  const prefix = await rootPrefix();
  if (onPath("apt-get") === undefined || prefix === undefined) {
    const names = missing.map(([program]) => program).join(", ");
    throw new SetupError(`${purpose}: ${names} not found.`, advice);
  }
  const apt = aptGet(prefix, advice);
  await apt.update();
  await apt.install(packages);
  const still = Object.keys(programs).filter((program) => onPath(program) === undefined);
  if (still.length > 0)
    throw new SetupError(`${purpose}: ${still.join(", ")} not found after installing.`, advice);
}
