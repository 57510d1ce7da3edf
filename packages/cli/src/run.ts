import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { UsageError } from "./command.ts";
import { commandGroups, commands } from "./commands.ts";
import { type Output, processOutput, Terminal } from "./terminal.ts";

const wrongUsage = 2;

/** Runs `cinnabar ARGUMENTS` and returns its exit status: 0 success, 1 the check of a command failed, 2 wrong usage. */
export async function run(args: readonly string[], output: Output = processOutput()): Promise<number> {
  const terminal = new Terminal(output);
  const [verb, ...rest] = args;
  if (verb === undefined) {
    terminal.complain(help());
    return wrongUsage;
  }
  if (verb === "--help" || verb === "-h" || verb === "help") {
    const command = await commands.find(({ name }) => name === rest[0])?.load();
    terminal.print(command?.help.split("\n") ?? help());
    return 0;
  }
  if (verb === "--version" || verb === "-V") {
    terminal.print(version());
    return 0;
  }
  const listed = commands.find(({ name }) => name === verb);
  if (listed === undefined) {
    const what = verb.startsWith("-") ? `unknown option "${verb}"` : `unknown command "${verb}"`;
    terminal.complain(`cinnabar: ${what}; \`cinnabar --help\` lists the commands`);
    return wrongUsage;
  }
  const command = await listed.load();
  if (rest.includes("--help") || rest.includes("-h")) {
    terminal.print(command.help.split("\n"));
    return 0;
  }
  try {
    return await command.run(rest, terminal);
  } catch (error) {
    if (!(error instanceof UsageError)) return unexpected(error, terminal, `cinnabar ${verb}`);
    terminal.complain(`cinnabar ${verb}: ${error.message}; see \`cinnabar ${verb} --help\``);
    return wrongUsage;
  }
}

/**
 * Prints a fault of the command itself, and returns the exit status. Its text may be that of a server, so Node must not
 * print it. The stack follows where CINNABAR_DEBUG is set.
 */
export function unexpected(
  error: unknown,
  terminal = new Terminal(processOutput()),
  command = "cinnabar",
): number {
  const isDebugged = (process.env.CINNABAR_DEBUG ?? "") !== "";
  const hint = isDebugged ? "" : "; CINNABAR_DEBUG=1 prints where";
  terminal.complain(`${command}: unexpected error: ${error instanceof Error ? error.message : error}${hint}`);
  if (isDebugged && error instanceof Error) terminal.complain((error.stack ?? "").split("\n"));
  return 1;
}

function help(): readonly string[] {
  const width = Math.max(...commands.map(({ name }) => name.length));
  return [
    "Usage: cinnabar COMMAND [OPTION…]",
    "",
    ...commandGroups.flatMap(({ title, commands }) => [
      `${title}:`,
      ...commands.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`),
      "",
    ]),
    "`cinnabar COMMAND --help` explains a command. `cinnabar --version` prints the version.",
  ];
}

function version(): string {
  // The command is part of that package.
  const file = createRequire(import.meta.url).resolve("cinnabar/package.json");
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}
