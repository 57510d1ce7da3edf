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
  try {
    return parseArgs({ args: [...args], options, strict: true }).values;
  } catch (error) {
    const [sentence = ""] = (error as Error).message.split(/\.\s|\n/);
    throw new UsageError(sentence.charAt(0).toLowerCase() + sentence.slice(1));
  }
}
