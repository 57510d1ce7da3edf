// Many calls, and many given up, in one process for both sides or two; what they leave behind is measured by the test.
import { Engine, RpcError } from "cinnabar";
import { engineCommands, footprint, obey, settings, tell } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";
import { Trial } from "./trial.ts";

/**
 * How calls are given up: by their signal right after they were made, by their time, or by nobody keeping their
 * promise.
 */
export type Abandoned = "aborted" | "late" | "dropped";

/** `listen`: the server is in this process too. */
const { url, listen } = settings<{ readonly url?: string; readonly listen?: string }>();
const server = listen === undefined ? [] : [await Engine.open({ listen, serve: [serveTrial(() => "")] })];
const engine = await Engine.open();
const peer = await engine.connect(url ?? (server[0]?.urls[0] as string));
const trial = peer.client(Trial, { timeoutMs: 60_000 });
const engines = [engine, ...server];

/** Calls given up at once; the server must be able to take them all beside what it has not ended yet. */
const batch = 64;

obey({
  ...engineCommands(engine),
  stats: () => engines.map((each) => each.stats()),
  footprint,
  async calls(count: number) {
    for (let i = 0; i < count; i++) await trial.nothing();
  },
  /** How many of the calls failed with the code that their end is to have. */
  async abandon({ how, count }: { how: Abandoned; count: number }) {
    let ended = 0;
    for (let left = count; left > 0; left -= batch) {
      const codes = await Promise.all(
        Array.from({ length: Math.min(batch, left) }, (_, i) => abandon(how, i)),
      );
      ended += codes.filter((code) => code === expected[how]).length;
      // What came before it has been taken by the server when this has its answer.
      await trial.nothing();
    }
    return ended;
  },
});
tell("connected");

const expected: Readonly<Record<Abandoned, string>> = {
  aborted: "cancelled",
  late: "deadline_exceeded",
  dropped: "dropped",
};

/** Every other one is being answered when it is given up. */
function abandon(how: Abandoned, i: number): Promise<string> {
  const ask = (options: { signal?: AbortSignal; timeoutMs?: number }): Promise<unknown> =>
    i % 2 === 0 ? trial.linger(options) : trial.echo({ token: "t" }, options);
  switch (how) {
    case "aborted": {
      const controller = new AbortController();
      const call = ask({ signal: controller.signal });
      // Some before they leave, some on their way, and some when a handler has them.
      if (i % 4 === 0) setImmediate(() => controller.abort());
      else controller.abort();
      return codeOf(call);
    }
    case "late":
      return codeOf(trial.linger({ timeoutMs: 1 }));
    case "dropped":
      void trial.echo({ token: "t" });
      return Promise.resolve("dropped");
  }
}

function codeOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => "answered",
    (error: unknown) => (error instanceof RpcError ? error.code : String(error)),
  );
}
