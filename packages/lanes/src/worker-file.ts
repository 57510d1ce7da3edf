import { existsSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";
import { RpcError } from "cinnabar/standard";

/**
 * The path of the file that the thread of a lane runs: beside this one or, for a bundle, in the installed package.
 * `folderOf` finds the folder of the package.
 *
 * @throws RpcError `failed_precondition` if neither file exists.
 */
export function workerFile(folderOf: () => string | undefined = packageFolder): string {
  const isModule = (import.meta.url as string | undefined) !== undefined;
  // Bundlers must leave the file alone: webpack would copy it without what it imports.
  const beside =
    isModule && fileURLToPath(new URL(/* webpackIgnore: true */ "./lane-worker.js", import.meta.url));
  const folder = folderOf();
  const installed = folder !== undefined && join(folder, "dist", "lane-worker.js");
  const candidates = [beside, installed].filter((path) => typeof path === "string");
  const found = candidates.find((path) => existsSync(path));
  if (found !== undefined) return found;
  throw new RpcError({
    code: "failed_precondition",
    message:
      `openLanes: the file of the worker threads was not found; tried ${candidates.join(", ") || "none"}. A bundle ` +
      "does not contain it: mark cinnabar-lanes as external in the bundler, and install it beside the bundle",
  });
}

/**
 * The folder of the installed package; undefined without one. In a bundle `import.meta.url` is undefined, or names a
 * file of the machine that made the bundle. Then the search starts at the program and at the working folder.
 */
function packageFolder(): string | undefined {
  // Not imported: webpack replaces an imported `createRequire` with its own function.
  const { createRequire } = process.getBuiltinModule("node:module");
  const here: string | undefined = import.meta.url;
  for (const origin of [here, process.argv[1], join(process.cwd(), "package.json")]) {
    if (origin === undefined || !(origin.startsWith("file:") || isAbsolute(origin))) continue;
    try {
      return dirname(createRequire(origin).resolve("cinnabar-lanes/package.json"));
    } catch {
      // Not from there.
    }
  }
  return undefined;
}
