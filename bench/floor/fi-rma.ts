import { type ChildProcessByStdio, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** What was moved in a stretch of time, and what both sides used for it. */
export interface RmaMeasured {
  readonly transfers: number;
  readonly elapsedMs: number;
  /** Processor time of both processes. */
  readonly cpuMs: number;
}

/** The build has no C++; the source lies beside that of this file. */
const source = fileURLToPath(new URL("../../../bench/floor/rma.cc", import.meta.url));
/** What connections of an engine have within the host, so that the floor is not the slower one (docs/design/tcp.md). */
const congestionControl = "reno";
const headers = fileURLToPath(new URL("../../../native/include", import.meta.url));

/** Reads and writes between two processes over a bare provider of libfabric, by loops in C++ (bench/floor/rma.cc). */
export class FiRma {
  readonly #process: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: Interface;
  readonly #answers: AsyncIterator<string>;
  readonly #folder: string;

  private constructor(folder: string, provider: string, library: string) {
    this.#folder = folder;
    this.#process = spawn(programIn(folder), [provider, library, congestionControl], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.#process.stdin.on("error", () => {}); // it has ended, which whoever asks hears of
    this.#lines = createInterface(this.#process.stdout);
    this.#answers = this.#lines[Symbol.asyncIterator]();
  }

  /**
   * Compiles the program and starts it.
   *
   * @param provider as libfabric calls it, such as `tcp`
   * @param library the file that both processes load: the engine's own, for a fair comparison
   * @throws Error when there is no compiler or no header of libfabric
   */
  static async start(provider: string, library: string): Promise<FiRma> {
    const folder = await mkdtemp(join(tmpdir(), "cinnabar-rma-"));
    try {
      const options = ["-std=c++20", "-O2", "-rdynamic", "-I", headers];
      await promisify(execFile)("c++", [...options, source, "-o", programIn(folder), "-ldl"]);
      return new FiRma(folder, provider, library);
    } catch (error) {
      await rm(folder, { recursive: true });
      throw error;
    }
  }

  /** Moves transfers of one size for a time; the last of them end after it. */
  async move(
    op: "read" | "write",
    bytes: number,
    inFlight: number,
    durationMs: number,
  ): Promise<RmaMeasured> {
    this.#process.stdin.write(`${op} ${bytes} ${inFlight} ${Math.ceil(durationMs)}\n`);
    const { done, value } = await this.#answers.next();
    if (done === true) throw new Error("the floor in C++ has ended before its time");
    const [transfers = Number.NaN, us = Number.NaN, cpuUs = Number.NaN] = value.split(" ").map(Number);
    return { transfers, elapsedMs: us / 1000, cpuMs: cpuUs / 1000 };
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

const programIn = (folder: string) => join(folder, "rma");
