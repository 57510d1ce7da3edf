import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { implement, service, unary } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Work = service("work.v1", {
  run: unary({ output: z.unknown() }),
  once: unary({ output: z.unknown(), replay: true }),
});

function heard(channel: string): unknown[] {
  const messages: unknown[] = [];
  const listen = (message: unknown) => messages.push(message);
  subscribe(channel, listen);
  onTestFinished(() => void unsubscribe(channel, listen));
  return messages;
}

describe.each(transports)("a handler over $name", (provider) => {
  it.each(["run", "once"] as const)(
    "that never ends is ended at its deadline, and told of (%s)",
    async (method) => {
      const overdue = heard("cinnabar:handler.overdue");
      const late = heard("cinnabar:handler.late");
      const never = () => new Promise(() => {});
      const { api, server } = await pair(provider, [implement(Work, { run: never, once: never })]);
      // No caller's cancel: the time that the request says is shorter than the caller's patience.
      const error = await failure(
        api(Work)[method](method === "run" ? { attemptTimeoutMs: 60, retry: false } : { timeoutMs: 60 }),
      );
      expect(error.code).toBe("deadline_exceeded");
      await until(
        () => server.stats().calls.in === 0 && server.stats().deadlines === 0,
        "the server has let go",
      );
      const { overdueHandlers, lateResults } = server.stats().counters;
      // Both sides run a clock: the caller's cancel may have come first, and then nothing was overdue.
      expect(overdue).toHaveLength(overdueHandlers);
      if (overdueHandlers > 0) expect(overdue[0]).toMatchObject({ method: `work.v1/${method}` });
      expect([lateResults, late]).toEqual([0, []]);
    },
  );

  it("that settles twice is told of, and its second word goes nowhere", async () => {
    const late = heard("cinnabar:handler.late");
    // A thenable that breaks the rules of promises.
    const twice = {
      // biome-ignore lint/suspicious/noThenProperty: that is what is tried
      then: (yes: (value: unknown) => void, no: (error: unknown) => void) => [yes(1), yes(2), no(3)],
    };
    const run = () => twice as unknown as Promise<unknown>;
    const { api, server } = await pair(provider, [implement(Work, { run, once: run })]);
    expect(await api(Work).run()).toBe(1);
    expect(await api(Work).once({ retry: { attempts: 2 } })).toBe(1);
    expect(server.stats().counters).toMatchObject({
      lateResults: 4,
      requestsSucceeded: 2,
      requestsFailed: 0,
    });
    expect(late).toHaveLength(4);
  });
});
