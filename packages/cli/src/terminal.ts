import { styleText } from "node:util";

/** The output of a command. */
export interface Terminal {
  /** Writes results to standard output. */
  print(text: string): void;
  /** Writes errors to standard error. */
  complain(text: string): void;
  /** Characters in a line; Infinity without a terminal. */
  readonly columns: number;
  /** Lines on the screen; absent without a terminal. */
  readonly rows?: number;
  paint(style: "bold" | "green" | "red" | "dim", text: string): string;
}

/**
 * The output of this process. It is coloured on a terminal, unless NO_COLOR (https://no-color.org) is set or TERM is
 * `dumb`.
 */
export function processTerminal(): Terminal {
  const { stdout, stderr, env } = process;
  const isColored = stdout.isTTY === true && (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb";
  return {
    print: (text) => stdout.write(`${text}\n`),
    complain: (text) => stderr.write(`${text}\n`),
    columns: stdout.isTTY === true && stdout.columns > 0 ? stdout.columns : Number.POSITIVE_INFINITY,
    ...(stdout.isTTY === true && stdout.rows > 0 ? { rows: stdout.rows } : {}),
    // Decided once, here: the rules of Node differ between versions.
    paint: (style, text) => (isColored ? styleText(style, text, { validateStream: false }) : text),
  };
}
