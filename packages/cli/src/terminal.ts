import { styleText } from "node:util";

/** Where a command writes, and how. */
export interface Terminal {
  /** What was asked for: standard output. */
  print(text: string): void;
  /** What went wrong: standard error. */
  complain(text: string): void;
  /** Characters in a line; Infinity where nobody reads it on a screen. */
  readonly columns: number;
  paint(style: "bold" | "green" | "red" | "dim", text: string): string;
}

/** The process's own: in colour on a screen, unless NO_COLOR (https://no-color.org) or a dumb terminal speaks against it. */
export function processTerminal(): Terminal {
  const { stdout, stderr, env } = process;
  const isColored = stdout.isTTY === true && (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb";
  return {
    print: (text) => stdout.write(`${text}\n`),
    complain: (text) => stderr.write(`${text}\n`),
    columns: stdout.isTTY === true && stdout.columns > 0 ? stdout.columns : Number.POSITIVE_INFINITY,
    // Decided here, once: Node's own rules differ between versions.
    paint: (style, text) => (isColored ? styleText(style, text, { validateStream: false }) : text),
  };
}
