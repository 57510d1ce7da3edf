import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { RpcError } from "../base/errors/rpc-error.ts";
import { packageFolder } from "../fabric/libfabric/own-files.ts";

/**
 * The path of the file that the thread of a lane runs: beside this one, or, for a bundle, in the installed package.
 *
 * @throws RpcError `failed_precondition` where there is neither.
 */
export function workerFile(): string {
  const isModule = (import.meta.url as string | undefined) !== undefined;
  // Bundlers must leave the file alone: webpack would copy it without what it imports.
  const beside =
    isModule && fileURLToPath(new URL(/* webpackIgnore: true */ "./lane-worker.js", import.meta.url));
  const folder = packageFolder();
  const installed = folder !== undefined && join(folder, "dist", "lanes", "lane-worker.js");
  const candidates = [beside, installed].filter((path) => typeof path === "string");
  const found = candidates.find((path) => existsSync(path));
  if (found !== undefined) return found;
  throw new RpcError({
    code: "failed_precondition",
    message:
      `openLanes: the file of the worker threads was not found; tried ${candidates.join(", ") || "none"}. A bundle ` +
      "does not contain it: mark cinnabar as external in the bundler, and install it beside the bundle",
    origin: "local",
  });
}
