import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { AnyService } from "cinnabar/standard";
import { CommandError } from "./command-error.ts";

/**
 * The services that a module of JavaScript or TypeScript exports.
 *
 * @param where stands before the file in an error
 * @throws CommandError when it cannot be loaded, or exports no service.
 */
export async function servicesIn(file: string, where = "--contract: "): Promise<readonly AnyService[]> {
  let module: Record<string, unknown>;
  try {
    module = (await import(pathToFileURL(resolve(file)).href)) as Record<string, unknown>;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ERR_UNKNOWN_FILE_EXTENSION" && /\.[cm]?tsx?$/.test(file))
      throw new CommandError(
        `${where}this Node reads no TypeScript: take Node 22.18 or later, or the compiled file of ${file}`,
      );
    throw new CommandError(`${where}${file} cannot be loaded: ${message.split("\n")[0]}`);
  }
  const services = Object.values(module).filter(isService);
  if (services.length === 0) throw new CommandError(`${where}${file} exports no service`);
  return services;
}

/** Also of another copy of the package: its brand is global. */
function isService(value: unknown): value is AnyService {
  const brand = Symbol.for("cinnabar.Service");
  return typeof value === "object" && value !== null && (value as { [brand]?: unknown })[brand] === true;
}
