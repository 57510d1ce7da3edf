import { FloorProgram } from "./program.ts";

/** What was moved in a stretch of time, and what both sides used for it. */
export interface RmaMeasured {
  readonly transfers: number;
  readonly elapsedMs: number;
  /** Processor time of both processes. */
  readonly cpuMs: number;
}

/** What connections of an engine have within the host, so that the floor is not the slower one (docs/design/tcp.md). */
const congestionControl = "reno";

/** Reads and writes between two processes over a bare provider of libfabric, by loops in C++ (bench/floor/rma.cc). */
export class FiRma {
  readonly #program: FloorProgram;

  private constructor(program: FloorProgram) {
    this.#program = program;
  }

  /**
   * Compiles the program and starts it.
   *
   * @param provider as libfabric calls it, such as `tcp`
   * @param library the file that both processes load: the engine's own, for a fair comparison
   * @throws Error when there is no compiler or no header of libfabric
   */
  static async start(provider: string, library: string): Promise<FiRma> {
    const options = ["-rdynamic", "-I", "native/include"];
    return new FiRma(await FloorProgram.start("rma", [], options, [provider, library, congestionControl]));
  }

  /** Moves transfers of one size for a time; the last of them end after it. */
  async move(
    op: "read" | "write",
    bytes: number,
    inFlight: number,
    durationMs: number,
  ): Promise<RmaMeasured> {
    const line = `${op} ${bytes} ${inFlight} ${Math.ceil(durationMs)}`;
    const [transfers = Number.NaN, us = Number.NaN, cpuUs = Number.NaN] = await this.#program.ask(line);
    return { transfers, elapsedMs: us / 1000, cpuMs: cpuUs / 1000 };
  }

  end(): Promise<void> {
    return this.#program.end();
  }
}
