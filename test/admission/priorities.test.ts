import { describe, expect, it } from "vitest";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";
import { waits } from "../matrix/waits.ts";
import { Held, Work } from "./support/work.ts";

const patient = { timeoutMs: 60_000 };

describe.each(transports)("priorities over $name", (provider) => {
  it("let control go first, and the others in their order", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work({ maxConcurrent: 1, ...waits })]);
    const work = api(Work, patient);
    const first = work.hold("first");
    await until(() => held.running === 1, "it runs");
    const calls = (["normal", "control"] as const).flatMap((priority) =>
      Array.from({ length: 3 }, (_, i) => work.hold(`${priority} ${i}`, { priority })),
    );
    await until(() => server.stats().admission.queued === 6, "all wait");
    held.endAll();
    await Promise.all([first, ...calls]);
    const order = ["control", "normal"].flatMap((priority) => [0, 1, 2].map((i) => `${priority} ${i}`));
    expect(held.began).toEqual(["first", ...order]);
  });

  it("decide who stays when the room to wait is full", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work({ maxConcurrent: 1, maxQueued: 2, ...waits })]);
    const work = api(Work, patient);
    const first = work.hold("first");
    await until(() => held.running === 1, "it runs");
    const normal = ["a", "b"].map((name) => failure(work.hold(name)));
    await until(() => server.stats().admission.queued === 2, "both wait");
    expect(await failure(work.hold("c"))).toMatchObject({ code: "resource_exhausted" });
    const control = ["e", "f"].map((name) => work.hold(name, { priority: "control" }));
    // The latest goes first.
    expect(await normal[1]).toMatchObject({
      code: "resource_exhausted",
      notExecuted: true,
      retryAfterMs: expect.any(Number),
      message: expect.stringContaining("a control request took its place in the queue"),
    });
    expect(await normal[0]).toMatchObject({ code: "resource_exhausted" });
    expect(await failure(work.hold("g", { priority: "control" }))).toMatchObject({
      code: "resource_exhausted",
    });
    expect(server.stats().admission.shed).toMatchObject({ pushed_out: 2, full: 2 });
    held.endAll();
    await Promise.all([first, ...control]);
    expect(held.began).toEqual(["first", "e", "f"]);
  });
});
