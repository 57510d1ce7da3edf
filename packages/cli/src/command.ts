import type { Terminal } from "./terminal.ts";

/** A command of `cinnabar`: one file of `commands/` and one entry of `commands.ts`. */
export interface Command {
  /** The output of `cinnabar NAME --help`. */
  readonly help: string;
  /**
   * Runs the command and returns its exit status: 0 success, 1 failure.
   * @throws UsageError for unknown arguments.
   */
  run(args: readonly string[], terminal: Terminal): number | Promise<number>;
}

/** Wrong arguments. `cinnabar` prints the message with a hint at `--help`, and exits with status 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
