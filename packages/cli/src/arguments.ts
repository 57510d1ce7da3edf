import { type ParseArgsConfig, parseArgs } from "node:util";
import { UsageError } from "./command.ts";

/**
 * Parses options with Node's strict `parseArgs`.
 * @throws UsageError with a message of one line.
 */
export function optionsOf<T extends NonNullable<ParseArgsConfig["options"]>>(
  args: readonly string[],
  options: T,
): ReturnType<typeof parseArgs<{ args: string[]; options: T; strict: true }>>["values"] {
  return told(() => parseArgs({ args: [...args], options, strict: true })).values;
}

/** The same for commands that take names beside options: they are `positionals`. */
export function argumentsOf<T extends NonNullable<ParseArgsConfig["options"]>>(
  args: readonly string[],
  options: T,
): ReturnType<typeof parseArgs<{ args: string[]; options: T; strict: true; allowPositionals: true }>> {
  return told(() => parseArgs({ args: [...args], options, strict: true, allowPositionals: true }));
}

function told<T>(parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    const [sentence = ""] = (error as Error).message.split(/\.\s|\n/);
    throw new UsageError(sentence.charAt(0).toLowerCase() + sentence.slice(1));
  }
}
