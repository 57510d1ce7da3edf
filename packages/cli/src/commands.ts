import type { Command } from "./command.ts";
import { build } from "./commands/build.ts";
import { info } from "./commands/info.ts";
import { keys } from "./commands/keys.ts";

/** All commands, in the order of the help. */
export const commands: readonly Command[] = [info, build, keys];
