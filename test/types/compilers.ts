import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** This folder. Temporary folders lie below it, so that what is compiled there finds the sources and the packages. */
export const here: string = dirname(fileURLToPath(import.meta.url));

const modules = join(here, "../../node_modules");

/** A compiler that the package's types must work under. */
export interface Compiler {
  readonly name: string;
  readonly bin: string;
  /** The arguments that make it check on one thread; on several, its counters count what each of them does again. */
  readonly serial: readonly string[];
}

export const compilers: readonly Compiler[] = [
  { name: "TypeScript 6", bin: join(modules, "typescript/bin/tsc"), serial: [] },
  { name: "TypeScript 7", bin: join(modules, "typescript-7/bin/tsc"), serial: ["--singleThreaded"] },
];

/** Runs a compiler; resolves to its exit status and all it printed, whether or not it is content. */
export function compile(bin: string, ...args: string[]): Promise<{ status: number; output: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [bin, ...args], { cwd: here, maxBuffer: 1 << 26 }, (error, stdout, stderr) => {
      resolve({
        status: error === null ? 0 : typeof error.code === "number" ? error.code : -1,
        output: stdout + stderr,
      });
    });
  });
}
