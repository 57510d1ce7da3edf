import { type ChildProcessByStdio, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** The build has no C++: sources lie in the repository, above this file's folder. */
const repository = fileURLToPath(new URL("../../../", import.meta.url));

/** A program in C++ that is compiled when it starts. It answers each line of its input with a line of numbers. */
export class FloorProgram {
  readonly #name: string;
  readonly #process: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: Interface;
  readonly #answers: AsyncIterator<string>;
  readonly #folder: string;

  private constructor(name: string, folder: string, args: readonly string[]) {
    this.#name = name;
    this.#folder = folder;
    this.#process = spawn(join(folder, name), args, { stdio: ["pipe", "pipe", "inherit"] });
    this.#process.stdin.on("error", () => {}); // it has ended, which `ask` reports
    this.#lines = createInterface(this.#process.stdout);
    this.#answers = this.#lines[Symbol.asyncIterator]();
  }

  /**
   * Compiles `bench/floor/NAME.cc` with the further sources, and starts it.
   *
   * @param options paths in them are relative to the repository
   * @throws Error when there is no compiler or a header is missing
   */
  static async start(
    name: string,
    sources: readonly string[],
    options: readonly string[],
    args: readonly string[],
  ): Promise<FloorProgram> {
    const folder = await mkdtemp(join(tmpdir(), `cinnabar-${name}-`));
    try {
      await promisify(execFile)(
        "c++",
        [
          "-std=c++20",
          "-O2",
          ...options,
          `bench/floor/${name}.cc`,
          ...sources,
          "-o",
          join(folder, name),
          "-ldl",
        ],
        { cwd: repository },
      );
      return new FloorProgram(name, folder, args);
    } catch (error) {
      await rm(folder, { recursive: true });
      throw error;
    }
  }

  async ask(line: string): Promise<readonly number[]> {
    this.#process.stdin.write(`${line}\n`);
    const { done, value } = await this.#answers.next();
    if (done === true) throw new Error(`bench/floor/${this.#name}.cc has ended too early`);
    return value.split(" ").map(Number);
  }

  async end(): Promise<void> {
    const { exitCode, signalCode } = this.#process;
    const ended = exitCode === null && signalCode === null ? once(this.#process, "exit") : undefined;
    this.#process.stdin.end();
    await ended;
    this.#lines.close();
    await rm(this.#folder, { recursive: true });
  }
}
