import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/**
 * What the compiler makes of the programs of tests. Those of packages/group and packages/nvme stay as they are: their
 * package imports `cinnabar`, and would have another copy of it than the program.
 */
const sources = ["test/processes/programs", "packages/lanes/test/programs"];
const built = sources.map((folder) => join(root, "build", folder));

/**
 * The same programs, each with all it imports in a few files. zod alone is 95 files, whose import takes as long as that
 * of the package, and the tests start a thousand processes and threads. The package finds its addon by its own name.
 */
const bundled = join(root, "build/programs");

/** The package of lanes, and what a thread of it begins with: it goes beside the file that starts the thread. */
const lanes = join(root, "packages/lanes/dist");
const laneWorker = join(lanes, "lane-worker.js");

/** Before the first test of a run: bundles the programs unless that was done since they were last built. */
export default async function bundlePrograms(): Promise<void> {
  if (![...built, laneWorker].every(existsSync)) return;
  const sourcesMs = Math.max(
    ...[...built, join(root, "dist"), lanes].map((folder) => written(folder).lastMs),
  );
  const isCurrent = () => written(bundled).firstMs > sourcesMs;
  if (isCurrent()) return;
  mkdirSync(dirname(bundled), { recursive: true });
  // Beside it first: another run may be using the old ones, and sees either these or those.
  const folder = mkdtempSync(`${bundled}-`);
  // A build removes nothing, so it may have programs whose source is gone.
  const programs = sources.flatMap((from) =>
    readdirSync(join(root, from)).map((name) => join(root, "build", from, name.replace(/ts$/, "js"))),
  );
  const bundle = await rolldown({
    input: [...programs, laneWorker],
    platform: "node",
    // As without a bundle: zod sets its language up in a module that nobody takes anything from.
    treeshake: { moduleSideEffects: true },
  });
  await bundle.write({ dir: folder, format: "esm", entryFileNames: "[name].js", sourcemap: false });
  await bundle.close();
  if (!isCurrent()) moveAside();
  try {
    renameSync(folder, bundled);
  } catch (error) {
    // When runs begin together, the first puts its programs in place, and processes may have them open already.
    if (!isCurrent()) throw error;
    rmSync(folder, { recursive: true });
  }
}

/** Removes programs that are older than their sources, so that nobody ever sees a part of them. */
function moveAside(): void {
  const old = mkdtempSync(`${bundled}-old-`);
  try {
    renameSync(bundled, join(old, "programs"));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // An overlay, as the guest has it, moves no folder of its lower layer. Only one run is there.
    if (code === "EXDEV") rmSync(bundled, { recursive: true });
    // There were none, or another run has moved them.
    else if (code !== "ENOENT") throw error;
  }
  rmSync(old, { recursive: true });
}

/** When the first and the last of a folder's programs was written. */
function written(folder: string): { readonly firstMs: number; readonly lastMs: number } {
  if (!existsSync(folder)) return { firstMs: 0, lastMs: 0 };
  const times = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".js"))
    .map((entry) => statSync(join(entry.parentPath, entry.name)).mtimeMs);
  return { firstMs: Math.min(...times), lastMs: Math.max(...times) };
}
