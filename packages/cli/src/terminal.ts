import { randomUUID } from "node:crypto";
import { styleText } from "node:util";

/** How a text may stand out. */
export type Style = "bold" | "green" | "red" | "dim";

/** Where the lines of a command go: this process's output, or that of a test. */
export interface Output {
  /** Writes to standard output, and ends the line. */
  print(text: string): void;
  /** Writes to standard error, and ends the line. */
  complain(text: string): void;
  /** Characters in a line; Infinity without a terminal. */
  readonly columns: number;
  /** Lines on the screen; absent without a terminal. */
  readonly rows?: number;
  paint(style: Style, text: string): string;
}

/**
 * The output of a command, and the one place through which texts of servers reach a terminal. Each text is one line: what
 * would move the cursor, end the line or turn the direction of writing is written as its number, as in `\u001b`. That is
 * JSON's form, so JSON stays what it was.
 */
export class Terminal {
  readonly #output: Output;
  /** Stands around painted parts until they are printed. No server can guess it. */
  readonly #mark = `\u0000${randomUUID()}`;

  constructor(output: Output) {
    this.#output = output;
  }

  /** Characters in a line; Infinity without a terminal. */
  get columns(): number {
    return this.#output.columns;
  }

  /** Lines on the screen; undefined without a terminal. */
  get rows(): number | undefined {
    return this.#output.rows;
  }

  /** Writes results, a line or several, to standard output. */
  print(lines: string | readonly string[]): void {
    this.#output.print(this.#textOf(lines));
  }

  /** Clears the screen, and writes as many of the lines as it holds. */
  draw(lines: readonly string[]): void {
    const rows = Math.max(1, (this.rows ?? lines.length + 1) - 1);
    this.#output.print(`\u001b[H\u001b[2J${this.#textOf(lines.slice(0, rows))}`);
  }

  /** Replaces the last line. */
  replaceLine(line: string): void {
    this.#output.print(`\u001b[1A\u001b[2K${this.#textOf(line)}`);
  }

  /** Writes an error, a line or several, to standard error. */
  complain(lines: string | readonly string[]): void {
    this.#output.complain(this.#textOf(lines));
  }

  /** A text that stands out when it is printed. */
  paint(style: Style, text: string): string {
    return `${this.#mark}${style};${text}${this.#mark}`;
  }

  #textOf(lines: string | readonly string[]): string {
    return (typeof lines === "string" ? [lines] : lines).map((line) => this.#lineOf(line)).join("\n");
  }

  #lineOf(line: string): string {
    // Every second part is painted.
    return line
      .split(this.#mark)
      .map((part, at) => {
        if (at % 2 === 0) return printable(part);
        const end = part.indexOf(";");
        return this.#output.paint(part.slice(0, end) as Style, printable(part.slice(end + 1)));
      })
      .join("");
  }
}

/** White space that JSON writes as an escape: a text that contains it raw is not JSON. */
const lineBreaks = /[\t\n\v\f\r]+/g;
/** Control characters, marks of direction and of format, other ends of lines, halves of characters. */
const unprintable = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** A text of which each character is shown, on one line. */
export function printable(text: string): string {
  return text.replace(lineBreaks, " ").replace(unprintable, numbered);
}

function numbered(character: string): string {
  let text = "";
  for (let at = 0; at < character.length; at++)
    text += `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`;
  return text;
}

/**
 * The output of this process. It is coloured on a terminal, unless NO_COLOR (https://no-color.org) is set or TERM is
 * `dumb`.
 */
export function processOutput(): Output {
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
