import { setTimeout as pause } from "node:timers/promises";
import { Engine, type EngineOptions, implement, oneWay, serverStream, service, unary } from "cinnabar";
import { inspection, reflection } from "cinnabar-inspect";
import { z } from "zod";
import { type Running, startProgram } from "./command-line.ts";

/** What the tests have opened and started: `endAll` ends it in the reverse order. */
export const ends: (() => unknown)[] = [];

export async function endAll(): Promise<void> {
  for (const end of ends.splice(0).reverse()) await end();
}

/** A service whose calls can be held, be slow, and fail. */
export const Work = service("work.v1", {
  ping: unary({ input: z.string(), output: z.string(), idempotent: true }),
  hold: unary({ output: z.string() }),
  slow: unary(),
  fail: unary(),
  count: serverStream({ output: z.int() }),
});

/** In an error of a handler: nobody else may see it. */
export const secret = "nobody may see this";

export async function open(options: EngineOptions = {}): Promise<Engine> {
  const engine = await Engine.open(options);
  ends.push(() => engine.close());
  return engine;
}

export interface Served {
  readonly engine: Engine;
  readonly url: string;
  /** Lets the calls of `hold` end. */
  release(): void;
}

/** The services by which a server can be watched. */
export const looks = { inspection, reflection };

/** A server that lets others look into it. Sockets of Node need no addon. */
export async function serve(
  options: EngineOptions = {},
  told: (keyof typeof looks)[] = ["inspection"],
): Promise<Served> {
  let release = () => {};
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const implementation = implement(Work, {
    ping: (text) => text,
    hold: async () => {
      await gate;
      return "done";
    },
    // Longer than the shortest time that a command can ask for.
    slow: () => pause(5),
    fail: () => {
      throw new Error(secret);
    },
    count: async function* () {
      yield 1;
      await gate;
    },
  });
  const engine = await open({
    listen: "net://127.0.0.1:0",
    serve: [implementation],
    onHandlerError: () => {},
    ...options,
  });
  engine.serve(...told.map((look) => looks[look](engine)));
  ends.push(release);
  return { engine, url: engine.urls[0] as string, release };
}

/** `block` computes without an end. */
export const Block = service("block.v1", { block: oneWay() });

/** A server of `Block` in a process of its own. */
export async function serveApart(listen = "net://127.0.0.1:0"): Promise<Running & { readonly url: string }> {
  const text = `
    import { Engine, implement, oneWay, service } from "cinnabar/standard";
    import { inspection, reflection } from "cinnabar-inspect";
    const Block = service("block.v1", { block: oneWay() });
    const block = implement(Block, { block() { for (;;); } });
    const engine = await Engine.open({
      listen: process.argv[1],
      serve: (opening) => [block, inspection(opening), reflection(opening)],
    });
    console.log(engine.urls[0]);`;
  const running = track(startProgram(["--input-type=module", "-e", text, "--", listen]));
  const [url = ""] = await running.lines(1);
  return { ...running, url };
}

/** A program that is killed at the end of its test, if it still runs. */
export function track(running: Running): Running {
  ends.push(() => running.child.exitCode === null && running.child.kill("SIGKILL") && running.ended);
  return running;
}
