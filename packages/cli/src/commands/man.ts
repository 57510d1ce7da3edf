import { optionsOf } from "../arguments.ts";
import type { Command } from "../command.ts";
import { commands } from "../commands.ts";

const help = `Usage: cinnabar man

Prints the manual page, made of what --help prints of each command:
cinnabar man | man -l -`;

/** `cinnabar man`: the manual page, in mdoc(7). */
export const man: Command = {
  help,
  async run(args, terminal) {
    optionsOf(args, {});
    const loaded = await Promise.all(
      commands.map(async ({ name, load }) => ({ name, text: (await load()).help })),
    );
    terminal.print(manualPage(loaded, new Date()).split("\n"));
    return 0;
  },
};

/** The page, of the help of each command. */
export function manualPage(
  helps: readonly { readonly name: string; readonly text: string }[],
  date: Date,
): string {
  const month = date.toLocaleString("en", { month: "long", timeZone: "UTC" });
  return [
    `.Dd ${month} ${date.getUTCDate()}, ${date.getUTCFullYear()}`,
    ".Dt CINNABAR 1",
    ".Os",
    ".Sh NAME",
    ".Nm cinnabar",
    ".Nd look at what a machine offers and at servers that run",
    ".Sh SYNOPSIS",
    ".Nm",
    ".Ar command",
    ".Op Ar option ...",
    ".Sh DESCRIPTION",
    ".Nm",
    "has these commands.",
    ...helps.flatMap(({ name, text }) => [
      `.Ss ${name}`,
      ".Bd -literal",
      ...text.split("\n").map(lineOfRoff),
      ".Ed",
    ]),
    ".Sh EXIT STATUS",
    "0: success.",
    "1: the command could not do its work here.",
    "2: wrong usage.",
    "65 to 80: a call failed; 64 and the number of its code.",
    "130, 143, 141: ended by Ctrl-C, by SIGTERM, or because the reader of the output is gone.",
  ].join("\n");
}

/** A line as roff reads it: no escapes, no macro at its start, plain hyphens. */
function lineOfRoff(line: string): string {
  const plain = line
    .replaceAll("\\", "\\e")
    .replaceAll("…", "...")
    .replaceAll("-", "\\-")
    .replaceAll("`", "\\(ga");
  return /^[.']/.test(plain) ? `\\&${plain}` : plain;
}
