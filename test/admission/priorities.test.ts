import type { Priority } from "cinnabar";
import { describe, expect, it } from "vitest";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";
import { waits } from "../matrix/waits.ts";
import { Held, Work } from "./support/work.ts";

const patient = { timeoutMs: 60_000 };

describe.each(transports)("priorities over $name", (provider) => {
  it("decide who goes first, and nobody starves", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work({ maxConcurrent: 1, ...waits })]);
    const work = api(Work, patient);
    const first = work.hold("first");
    await until(() => held.running === 1, "it runs");
    const calls = (["low", "normal", "high", "control"] as const).flatMap((priority) =>
      Array.from({ length: priority === "control" ? 2 : 12 }, (_, i) =>
        work.hold(`${priority} ${i}`, { priority }),
      ),
    );
    await until(() => server.stats().admission.queued === 38, "all wait");
    const { queuedByPriority } = server.stats().admission;
    expect(Object.values(queuedByPriority).map(({ calls }) => calls)).toEqual([2, 12, 12, 12]);
    held.endAll();
    await Promise.all([first, ...calls]);
    const order = held.began.slice(1);
    expect(order.slice(0, 2)).toEqual(["control 0", "control 1"]);
    const round = order.slice(2, 15);
    const turns = (priority: Priority) => round.filter((name) => name.startsWith(priority)).length;
    expect([turns("high"), turns("normal"), turns("low")]).toEqual([8, 4, 1]);
    // Each class in its order.
    expect(order.filter((name) => name.startsWith("low"))).toEqual(
      Array.from({ length: 12 }, (_, i) => `low ${i}`),
    );
  });

  it("decide who stays when the room to wait is full", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work({ maxConcurrent: 1, maxQueued: 2, ...waits })]);
    const work = api(Work, patient);
    const first = work.hold("first");
    await until(() => held.running === 1, "it runs");
    const low = ["a", "b"].map((name) => failure(work.hold(name, { priority: "low" })));
    await until(() => server.stats().admission.queued === 2, "both wait");
    const high = ["c", "d"].map((name) => work.hold(name, { priority: "high" }));
    // One room of the two stays with those that are low.
    expect(await low[1]).toMatchObject({
      code: "resource_exhausted",
      notExecuted: true,
      retryAfterMs: expect.any(Number),
      message: expect.stringContaining("a more urgent request took its place in the queue"),
    });
    expect(await failure(high[1] as Promise<string>)).toMatchObject({ code: "resource_exhausted" });
    expect(server.stats().admission.shed).toMatchObject({ pushed_out: 1, full: 1 });
    const control = ["e", "f"].map((name) => work.hold(name, { priority: "control" }));
    expect(await low[0]).toMatchObject({ code: "resource_exhausted" });
    expect(await failure(high[0] as Promise<string>)).toMatchObject({ code: "resource_exhausted" });
    held.endAll();
    await Promise.all([first, ...control]);
    expect(held.began).toEqual(["first", "e", "f"]);
  });
});
