import type { Terminal } from "./terminal.ts";

/** What a table is laid out for. */
type Paper = Pick<Terminal, "columns" | "paint">;

const gap = 2;
/** A wrapped column of fewer characters is harder to read than a line that is too long. */
const narrowest = 24;
/** A name of fewer characters says too little. */
const narrowestName = 8;

/**
 * Lays out rows in columns under a heading. Only the last column wraps, to the width of the terminal. Without a
 * terminal each row is one line, so that grep finds all of it.
 */
export function table(
  terminal: Paper,
  heading: readonly string[],
  rows: readonly (readonly string[])[],
): string[] {
  const last = heading.length - 1;
  const widths = heading.map((title, at) =>
    Math.max(title.length, ...rows.map((row) => row[at]?.length ?? 0)),
  );
  const indent = widths.slice(0, last).reduce((sum, width) => sum + width + gap, 0);
  const room = Math.max(narrowest, terminal.columns - indent);
  const lineOf = (cells: readonly string[]) =>
    widths
      .map((width, at) => (at === last ? (cells[at] ?? "") : (cells[at] ?? "").padEnd(width + gap)))
      .join("")
      .trimEnd();
  const lines = rows.flatMap((row) => {
    const [first = "", ...more] = wrap(row[last] ?? "", room);
    return [lineOf([...row.slice(0, last), first]), ...more.map((text) => " ".repeat(indent) + text)];
  });
  return [terminal.paint("bold", lineOf(heading)), ...lines];
}

/**
 * Lays out rows of numbers, to the right, behind a name, to the left. On a terminal that is too narrow the columns move
 * together, and names lose their beginnings: the ends of URLs and paths tell them apart.
 */
export function numbers(
  terminal: Paper,
  heading: readonly string[],
  rows: readonly (readonly string[])[],
): string[] {
  const all = [heading, ...rows];
  const widths = heading.map((_, at) => Math.max(...all.map((row) => row[at]?.length ?? 0)));
  const width = widths.reduce((sum, width) => sum + width, 0);
  const between = width + gap * (widths.length - 1) <= terminal.columns ? gap : 1;
  const [longest = 0, ...others] = widths;
  const taken = others.reduce((sum, width) => sum + width + between, 0);
  const nameWidth = Math.min(longest, Math.max(narrowestName, terminal.columns - taken));
  const lines = all.map(([name = "", ...cells]) =>
    [
      (name.length > nameWidth ? `…${name.slice(name.length - nameWidth + 1)}` : name).padEnd(nameWidth),
      ...cells.map((cell, at) => cell.padStart((others[at] as number) + between)),
    ].join(""),
  );
  return [terminal.paint("bold", lines[0] as string), ...lines.slice(1)];
}

/** Cuts a text between words into lines of at most `width` characters. A longer word stays whole. */
export function wrap(text: string, width: number): string[] {
  if (text.length <= width) return [text];
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}
