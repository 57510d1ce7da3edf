import { closeSync, openSync, readdirSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { Engine, EngineOptions } from "cinnabar";
import type { EngineLimits } from "../../../src/base/flow/engine-limits.ts";

/** Something that happened in a child, told to its test. */
export interface Report {
  readonly report: string;
  // biome-ignore lint/suspicious/noExplicitAny: each kind has its own details, and a test knows which it asked for
  readonly [detail: string]: any;
}

/** What a command returned or threw. */
export interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: unknown;
}

type Command = (input: never) => unknown;

/** What a test gives the program `server.ts`. Any limit can be set. */
export interface ServerSettings extends Omit<EngineOptions, "limits" | "serve"> {
  readonly limits?: Partial<EngineLimits> | undefined;
}

/** What the test wrote on the command line. */
export function settings<T>(): T {
  return JSON.parse(process.argv[2] ?? "{}") as T;
}

export function tell(report: string, detail: object = {}): void {
  if (process.connected) process.send?.({ report, ...detail });
}

/** Answers what the test asks until the test or its process is gone. */
export function obey(commands: Readonly<Record<string, Command>>): void {
  process.on("disconnect", () => process.exit(0));
  process.on("message", async ({ id, command, input }: { id: number; command: string; input: never }) => {
    try {
      const run = commands[command];
      if (run === undefined) throw new Error(`unknown command ${command}`);
      process.send?.({ id, value: await run(input) });
    } catch (error) {
      process.send?.({ id, error });
    }
  });
}

export interface Footprint {
  readonly descriptors: number;
  readonly rssBytes: number;
  readonly heapBytes: number;
  /** Bytes of buffers, and of what else the heap keeps alive outside of it. */
  readonly externalBytes: number;
  /** Resident bytes outside of the heap. */
  readonly nativeBytes: number;
}

/** Commands of every program that has an engine. */
export function engineCommands(
  engine: Pick<Engine, "urls" | "stats" | "drain" | "close">,
): Record<string, Command> {
  return {
    urls: () => engine.urls,
    stats: () => engine.stats(),
    footprint,
    /** The number that the next descriptor gets: with it for a limit the process has none left. */
    nextDescriptor() {
      const next = openSync("/dev/null", "r");
      closeSync(next);
      return next;
    },
    resources: () => process.getActiveResourcesInfo(),
    /** Processor time over wall time, while nothing is asked of the process. */
    async idleShare(windowMs: number) {
      const begun = performance.now();
      const before = process.cpuUsage();
      await delay(windowMs);
      const used = process.cpuUsage(before);
      return (used.user + used.system) / 1000 / (performance.now() - begun);
    },
    drain: () => engine.drain(),
    /** Nothing runs on this thread for a while; told before, so that the test can act meanwhile. */
    block(ms: number) {
      setImmediate(() => {
        tell("blocking");
        for (const until = performance.now() + ms; performance.now() < until; );
        tell("unblocked");
      });
    },
    close: () => engine.close(),
    /** After the answer has left. */
    exit: () => void setImmediate(() => process.disconnect()),
  };
}

export function footprint(): Footprint {
  globalThis.gc?.();
  const { rss, heapTotal, heapUsed, external } = process.memoryUsage();
  // The descriptor that lists the others is one of them.
  return {
    descriptors: readdirSync("/proc/self/fd").length - 1,
    rssBytes: rss,
    heapBytes: heapUsed,
    externalBytes: external,
    nativeBytes: rss - heapTotal,
  };
}
