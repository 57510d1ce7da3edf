import { randomBytes } from "node:crypto";
import { bulk, Engine, implement, type RemoteRegion, service, unary } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { grantOf } from "../../src/memory/remote-region.ts";
import type { FrameSpec } from "../../src/session/connection/fake-services.test-support.ts";
import { builtin, builtinMethods } from "../../src/wire/builtin.ts";
import { frameKind } from "../../src/wire/frame.ts";
import { deferred } from "../matrix/wait.ts";
import { Attacker, bodyOf } from "./support/attacker.ts";
import { freshUrl } from "./support/fabric.ts";
import { Victim } from "./support/victim.ts";

/** Slots of built-in methods begin behind those that the victim grants. */
const firstSlot = 4096;
let generation = 0;

const ask = (method: number, body: unknown, slot = firstSlot): FrameSpec => ({
  kind: frameKind.request,
  method,
  callId: (((++generation % 4000) + 1) << 20) | slot,
  word: 5000,
  body,
});

/** What the victim answers: 0 for a response, else the error's number. */
async function answer(attacker: Attacker, spec: FrameSpec): Promise<number> {
  const from = attacker.frames.length;
  await attacker.sendFrames(spec);
  const isAnswer = (kind: number) => kind === frameKind.response || kind === frameKind.error;
  await attacker.until(() => attacker.frames.slice(from).some(({ kind }) => isAnswer(kind)), "answer");
  return attacker.frames.slice(from).find(({ kind }) => isAnswer(kind))?.word as number;
}

const invalid = 3;
const notFound = 5;
const failedPrecondition = 9;
const unimplemented = 12;

const big = 2n ** 64n - 1n;
const nonsense: readonly unknown[] = [
  undefined,
  null,
  7,
  "why",
  {},
  [],
  [1],
  [1, 2, 3, 4, 5, 6],
  ["a", "b", "c", "d"],
  [big, "read", -1, 5],
  [big, "read", Number.MAX_VALUE, Number.MAX_VALUE],
  [big, Number.NaN, 0, 0n, 0n],
  [big, 0, 99, 0n, 0n],
  [-1n, 0, 0, 0n, 0n],
  [2n ** 100n, 2n ** 100n, 2n ** 100n],
  [big, Array.from({ length: 5000 }, () => 1)],
  [big, [0]],
  [new Uint8Array(15), 1n, 1n],
  [new Uint8Array(16), "1", 1n],
  [big, { byteLength: 5 }],
  [big, -5, 0.5],
  [big, 1, {}],
];

describe("built-in methods under attack", () => {
  it("answer what has not their form with invalid_argument, and serve on", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    for (const method of Object.values(builtin)) {
      // Bulk of this session is not sealed.
      const refusals =
        method === builtin.releasePieces ? [invalid, failedPrecondition] : [invalid, notFound, 0];
      for (const body of nonsense)
        expect(refusals, `${method} ${JSON.stringify(String(body))}`).toContain(
          await answer(attacker, ask(method, body)),
        );
    }
    const known = [
      ...Object.values<number>(builtin),
      ...Object.values(builtinMethods).map(({ number }) => number),
    ];
    for (const method of [Math.max(...known) + 1, 0xff80, 0xffff])
      expect(await answer(attacker, ask(method, []))).toBe(unimplemented);
    expect(victim.faults).toEqual([]);
    attacker[Symbol.dispose]();
    await victim.expectUnharmed();
  });

  it("know nothing of keys, tokens and tickets that were not given to the asker", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    const questions: [number, unknown][] = [
      [builtin.explainDenial, [5n, "read", 0, 1]],
      [builtin.putNotification, [5n, 1, 1]],
      [builtin.checksum, [5n, [0, 1]]],
      [builtin.borrow, [randomBytes(16), 5n, 1n]],
      [builtin.borrow, [randomBytes(16), victim.engine.incarnation, 1n]],
    ];
    for (const [method, body] of questions) expect(await answer(attacker, ask(method, body))).toBe(notFound);
    attacker[Symbol.dispose]();
    await victim.expectUnharmed();
  });

  it("do not let one peer reach what another was lent", async () => {
    const Lend = service("lend.v1", {
      hold: unary({ input: z.object({ memory: bulk("read_write") }) }),
    });
    const lent = deferred<RemoteRegion>();
    const release = deferred();
    const owner = await Engine.open({ listen: freshUrl() });
    const honest = await Engine.open({
      listen: freshUrl(),
      serve: [
        implement(Lend, {
          async hold({ memory }) {
            lent.resolve(memory as RemoteRegion);
            await release.promise;
          },
        }),
      ],
    });
    onTestFinished(() => Promise.all([owner.close(), honest.close()]).then(() => undefined));
    const words = new BigUint64Array(2);
    using memory = owner.expose(words, { access: "read_write" });
    const call = (await owner.connect(honest.urls[0] as string)).client(Lend).hold({ memory });
    const remote = await lent.promise;
    using attacker = await Attacker.at(owner.urls[0] as string);
    await attacker.connect();
    const key = grantOf(remote).grantKey;
    for (const [method, body] of [
      [builtin.checksum, [key, [0, 16]]],
      [builtin.putNotification, [key, 1, 1]],
      [builtin.explainDenial, [key, "read", 0, 16]],
    ] as const) {
      expect(await answer(attacker, ask(method, body))).toBe(notFound);
    }
    expect(words[0]).toBe(0n);
    release.resolve();
    await call;
  });

  it("in a slot for users' calls, or a request in one of theirs, end the session that sends it", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    await attacker.sendFrames(ask(builtin.explainDenial, [5n, "read", 0, 1], 0));
    await attacker.next(frameKind.goodbye);
    expect(bodyOf(attacker.frames.at(-1) as never)).toMatchObject({
      m: expect.stringContaining("is not in the slots of control methods"),
    });
    attacker[Symbol.dispose]();
    await victim.expectUnharmed();
  });
});
