import { setTimeout as delay } from "node:timers/promises";
import { Engine, type EngineOptions, RpcError } from "cinnabar";
import type { ServerSettings } from "../programs/commands.ts";
import { Child, endAllChildren } from "./child.ts";
import { freshUrl } from "./fabrics.ts";

const engines: Engine[] = [];

/**
 * An engine of the test's own process, closed after the test. A connect has four times its default, since a process that
 * starts may wait for a processor.
 */
export async function openEngine(options: EngineOptions = {}): Promise<Engine> {
  const engine = await Engine.open({ connectTimeoutMs: 20_000, ...options });
  engines.push(engine);
  return engine;
}

/** The server program, listening. */
export async function startServer(
  options: ServerSettings,
): Promise<{ readonly server: Child; readonly url: string; readonly life: string }> {
  const server = new Child("server", options);
  const { urls, life } = await server.report("listening");
  return { server, url: urls[0], life };
}

/** For afterEach: nothing the test started goes on, whatever it did. */
export async function endAllPeers(): Promise<void> {
  await endAllChildren();
  await Promise.all(engines.splice(0).map((engine) => engine.close()));
  // The next engine that opens removes the files of killed servers.
  await (await Engine.open({ listen: freshUrl("shm") })).close();
}

/** The code a call fails with, or "answered". */
export function outcome(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => "answered",
    (error: unknown) => (error instanceof RpcError ? error.code : String(error)),
  );
}

/**
 * Until something is so that no event tells of, which is looked at every two milliseconds; the test's own time limit
 * ends it. To look at every turn of the loop would take a processor from the processes that are waited for.
 */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await delay(2);
}

/** As `until`, at every turn of the loop: for what is so for a moment. */
export async function untilTurn(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise(setImmediate);
}

export const mebi = 1024 * 1024;
