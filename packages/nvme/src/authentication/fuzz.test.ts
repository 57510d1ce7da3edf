import { expect, it } from "vitest";
import { numbersFrom } from "../numbers.test-support.ts";
import { ControllerAuthentication } from "./controller-side.ts";
import { authenticate } from "./host-side.ts";
import { hashNames, makeSecret, parseSecret, type Secret } from "./secret.ts";

/** How many runs are tried. The stage disks-fuzz of `npm test` sets ten million messages. */
const runs = Math.ceil(Number(process.env.CINNABAR_AMOUNT ?? 5_000) / 5);
const ends = { hostNqn: "nqn.2026-11.test:host", subsystemNqn: "nqn.2026-11.test:disk" };
const newSecret = (): Secret => parseSecret(makeSecret()) as Secret;
const secret = newSecret();
const controllerSecret = newSecret();

it(`${runs} runs with mutated messages prove nothing without the secret, and break neither side`, async () => {
  const next = numbersFrom(Number(process.env.CINNABAR_SEED ?? 1));
  const mutated = (message: Buffer): Buffer => {
    if (next(3) === 0) return message;
    const copy = Buffer.from(message);
    for (let count = next(4); count > 0 && copy.length > 0; count--)
      copy[next(Math.min(copy.length, next(2) === 0 ? 16 : copy.length))] = next(256);
    if (next(8) === 0) return copy.subarray(0, next(copy.length + 1));
    return next(8) === 0 ? Buffer.concat([copy, Buffer.alloc(next(80), next(256))]) : copy;
  };
  const proved = { right: 0, wrong: 0 };
  for (let run = 0; run < runs; run++) {
    const dhGroups = [next(50) === 0 ? ("ffdhe2048" as const) : ("null" as const)];
    const proof = { secret, controllerSecret, hashes: hashNames, dhGroups };
    const controller = new ControllerAuthentication(ends, proof);
    const kept: Buffer[] = [];
    const hasSecret = next(2) === 0;
    const way = {
      send: async (message: Buffer) => {
        kept.push(mutated(message));
        // Messages come twice, and older ones again.
        for (let count = next(5) === 0 ? 2 : 1; count > 0; count--)
          await controller.take((next(12) === 0 ? kept[next(kept.length)] : kept.at(-1)) as Buffer);
      },
      get: async (into: Buffer) => {
        const given = await controller.next(next(10) === 0 ? next(200) : into.length);
        if (given === undefined) throw new Error("refused");
        mutated(given.message).copy(into);
      },
    };
    const secrets = { secret: hasSecret ? secret : newSecret(), controllerSecret };
    const error = await authenticate(way, ends, secrets).then(
      () => undefined,
      (reason: Error) => reason,
    );
    if (error !== undefined) expect(error.message).toMatch(/^(the target |refused)/);
    if (controller.isDone) proved[hasSecret ? "right" : "wrong"]++;
  }
  expect(proved.wrong).toBe(0);
  expect(proved.right).toBeGreaterThan(0);
}, 7_200_000);
