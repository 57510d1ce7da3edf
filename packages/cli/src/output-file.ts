import { accessSync, constants, existsSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { CommandError } from "./command-error.ts";

/** Checks early that a file can be written: what it is to hold may take long. @throws CommandError. */
export function assertWritable(option: string, file: string): void {
  try {
    accessSync(dirname(file), constants.W_OK);
  } catch (error) {
    throw new CommandError(`${option}: ${(error as Error).message}`);
  }
}

/** Writes a file, which appears whole or not at all. @throws CommandError. */
export function writeWhole(option: string, file: string, content: string | Uint8Array): void {
  // Two runs at once may write the same file.
  const unfinished = `${file}.${process.pid}.part`;
  try {
    writeFileSync(unfinished, content);
    renameSync(unfinished, file);
  } catch (error) {
    if (existsSync(unfinished)) rmSync(unfinished, { force: true });
    throw new CommandError(`${option}: ${(error as Error).message}`);
  }
}
