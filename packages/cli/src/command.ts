import type { Terminal } from "./terminal.ts";

/** One verb of `cinnabar`: a file of `commands/`, and a line in `commands.ts`. */
export interface Command {
  readonly name: string;
  /** For the list of commands: half a line. */
  readonly summary: string;
  /** All of `cinnabar NAME --help`. */
  readonly help: string;
  /** What the command found is its exit status: 0 well, 1 not. Throws UsageError for arguments that it does not know. */
  run(args: readonly string[], terminal: Terminal): number | Promise<number>;
}

/** Arguments that cannot be meant. Printed with where to find help; the exit status is 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
