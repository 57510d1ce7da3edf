import { once } from "node:events";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type Application, ApplicationError, isApplication, startOrder } from "./component.ts";
import { configure, linesOf, type Sources } from "./configuration.ts";
import { startApplication } from "./start.ts";

/** What `serveFile` takes: the words of a command line, and where its lines go. */
export interface ServeOptions {
  /** The module whose default export is the application. */
  readonly file: string;
  /** A file of JSON with fields by component. Default: none. */
  readonly configFile?: string | undefined;
  /** Prints the effective configuration, and starts nothing. Default false. */
  readonly printConfig?: boolean | undefined;
  /** How long work in flight may go on at the end, in milliseconds. Default 10,000. */
  readonly graceMs?: number | undefined;
  /** Default: none. */
  readonly flags?: Sources["flags"];
  /** Default: that of the process. */
  readonly env?: Sources["env"];
  /** Receives the lines of results. */
  readonly print: (line: string) => void;
  /** Receives the lines about failures. */
  readonly complain: (line: string) => void;
}

/**
 * Starts the application of a file, and stops it on SIGTERM and SIGINT. A second signal ends the process at once.
 * Resolves to the exit status: 0, or 1 if the application could not start or stop.
 */
export async function serveFile(options: ServeOptions): Promise<number> {
  const { print, complain, graceMs } = options;
  const asked = new AbortController();
  const onSignal = (signal: NodeJS.Signals): void => {
    print(`stops on ${signal}`);
    release();
    asked.abort(new ApplicationError(`it was stopped by ${signal}`));
  };
  const release = (): void => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.off(signal, onSignal);
  };
  // From the first moment: a service manager may stop what is still starting.
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, onSignal);
  // A listener of a signal does not keep the process alive.
  const alive = setInterval(() => {}, 2 ** 30);
  try {
    const application = await load(options.file);
    const sources: Sources = {
      file: options.configFile === undefined ? undefined : fileOf(options.configFile),
      env: options.env ?? process.env,
      flags: options.flags,
    };
    if (options.printConfig === true) {
      const configuration = await configure(application, startOrder(application), sources);
      for (const line of linesOf(configuration)) print(line);
      return 0;
    }
    const { signal } = asked;
    const started = await startApplication(application, { ...sources, signal, log: print });
    print(`${application.name} is ready`);
    if (!signal.aborted) await once(signal, "abort");
    const failures = await started.stop(graceMs);
    for (const { message } of failures) complain(message);
    return failures.length === 0 ? 0 : 1;
  } catch (error) {
    if (!(error instanceof ApplicationError)) throw error;
    if (asked.signal.aborted && error.cause === asked.signal.reason) return 0;
    for (const line of error.message.split("\n")) complain(line);
    return 1;
  } finally {
    clearInterval(alive);
    release();
  }
}

async function load(file: string): Promise<Application> {
  const url = pathToFileURL(resolve(file)).href;
  let module: { readonly default?: unknown };
  try {
    module = (await import(url)) as typeof module;
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === "ERR_UNKNOWN_FILE_EXTENSION")
      throw new ApplicationError(
        `${file}: this Node.js (${process.version}) does not run TypeScript; compile it, or use Node.js 22.18 or later`,
        { cause },
      );
    throw new ApplicationError(`${file} could not be loaded: ${message}`, { cause });
  }
  if (isApplication(module.default)) return module.default;
  throw new ApplicationError(
    `${file}: its default export is no application; write export default application(…)`,
  );
}

function fileOf(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch (cause) {
    // The text of an error of JSON quotes the file, and so its secrets.
    const why = (cause as NodeJS.ErrnoException).code ?? "it is not JSON";
    throw new ApplicationError(`${file} could not be read: ${why}`, { cause });
  }
}
