import type { Command } from "./command.ts";
import { info } from "./commands/info.ts";

/** Every verb, in the order of the help. */
export const commands: readonly Command[] = [info];
