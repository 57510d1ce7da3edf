import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { onPath, root } from "./command.mjs";
import { unpackPackages } from "./debian-archive.mjs";
import { isCurrent, markCurrent } from "./stamp.mjs";

/** The oldest suite that has a gateway as the tests want it: its program runs on later systems, too. */
const suite = "bookworm";
const folder = join("build", "etcd");
const program = join(folder, "usr", "bin", "etcd");
/** Debian's names of what Node calls by another. */
const architectures = /** @type {Record<string, string>} */ ({ x64: "amd64", arm64: "arm64" });

/**
 * Puts the server of etcd, from Debian's package, into `build/etcd`, for the tests of groups. It is not installed, as
 * the package would start it as a service. Where it cannot be had, those tests are skipped, and this says so.
 */
export async function getEtcd() {
  if (
    onPath("etcd") !== undefined ||
    existsSync(join(root, program)) ||
    isCurrent("without-etcd", "refused", [])
  )
    return;
  try {
    const architecture = architectures[process.arch];
    if (architecture === undefined) throw new Error(`Debian's ${suite} has none for ${process.arch}`);
    await unpackPackages({ suite, architecture, packages: ["etcd-server"], into: join(root, folder) });
  } catch (error) {
    rmSync(join(root, folder), { recursive: true, force: true });
    markCurrent("without-etcd", "refused");
    const why = error instanceof Error ? error.message.split("\n")[0] : error;
    console.log(`[setup] NO TEST WITH ETCD: its server cannot be had here: ${why}`);
  }
}
