import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { optionsOf } from "../arguments.ts";
import type { Command } from "../command.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar build [--out FILE]

Builds the native addon from the sources in the package, for Linux systems that
the package has no binary for. Takes CMake 3.22 or later and a C++20 compiler,
and some minutes. The headers that it needs are in the package. Programs then
take the new addon before the one of the package.

  --out FILE  Where to write the addon, if the package's folder cannot be
              written to. Let CINNABAR_ADDON name the file for your programs.`;

/** `cinnabar build`: builds the native addon from the sources in the package. */
export const build: Command = {
  help,
  run(args, terminal) {
    const { out } = optionsOf(args, { out: { type: "string" } });
    const native = join(dirname(createRequire(import.meta.url).resolve("cinnabar/package.json")), "native");
    const obstacle = obstacleTo(native);
    if (obstacle !== "") {
      terminal.complain(`cinnabar build: ${obstacle}`);
      return 1;
    }
    const target = resolve(out ?? join(native, "build", "Release", "cinnabar.node"));
    const folder = mkdtempSync(join(tmpdir(), "cinnabar-build-"));
    try {
      if (!compile(native, folder, terminal)) return 1;
      mkdirSync(dirname(target), { recursive: true });
      // A process that has the former file open keeps it.
      copyFileSync(join(folder, "cinnabar.node"), `${target}.new`);
      renameSync(`${target}.new`, target);
    } catch (error) {
      terminal.complain(`cinnabar build: ${(error as Error).message}; --out names another place`);
      return 1;
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
    terminal.print(out === undefined ? `Built ${target}` : `Built ${target}: set CINNABAR_ADDON to it`);
    return 0;
  },
};

/** Why the addon cannot be built here; "" if nothing is known to be in the way. */
function obstacleTo(native: string): string {
  if (process.platform !== "linux") return `the addon builds on Linux only, and this is ${process.platform}`;
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  if (header.glibcVersionRuntime === undefined)
    return "the addon needs glibc, and this Node is built for musl: take an image such as node:24-slim";
  if (!existsSync(join(native, "CMakeLists.txt"))) return `the sources are not at ${native}`;
  if (spawnSync("cmake", ["--version"]).status !== 0)
    return "cmake was not found: install cmake and a C++20 compiler (Debian, Ubuntu: apt-get install cmake g++)";
  return "";
}

/** Builds in a folder, and says whether that went well. What the tools print goes to the terminal. */
function compile(native: string, folder: string, terminal: Terminal): boolean {
  const configure = ["-S", native, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"];
  const steps = [
    [...configure, `-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=${folder}`],
    ["--build", folder, "--target", "cinnabar", "--parallel"],
  ];
  return steps.every((args) => {
    const { status } = spawnSync("cmake", args, { stdio: ["ignore", "inherit", "inherit"] });
    if (status !== 0) terminal.complain(`cinnabar build: cmake ended with ${status ?? "a signal"}`);
    return status === 0;
  });
}
