import { AsyncLocalStorage } from "node:async_hooks";
import { expect, it } from "vitest";
import { armDetached, runDetached } from "./detached-context.ts";

const user = new AsyncLocalStorage<string>();
const nextTurn = () =>
  new Promise<string | undefined>((resolve) => setImmediate(() => resolve(user.getStore())));

it("runs nothing in the context of the code that calls", async () => {
  const seen = user.run("ann", () => [
    runDetached(() => user.getStore()),
    armDetached(() => user.getStore()),
  ]);
  expect(seen).toEqual([undefined, undefined]);
  expect(await user.run("ann", () => armDetached(nextTurn))).toBeUndefined();
});

it("arms nothing in the context of a user whose code runs inside", async () => {
  const armed = runDetached(() => user.run("ann", () => armDetached(nextTurn)));
  expect(await armed).toBeUndefined();
  const inner = runDetached(() => user.run("ann", () => runDetached(nextTurn)));
  expect(await inner).toBeUndefined();
});

it("keeps nothing that a user's code has entered", () => {
  runDetached(() => user.enterWith("ann"));
  expect([runDetached(() => user.getStore()), armDetached(() => user.getStore())]).toEqual([
    undefined,
    undefined,
  ]);
});
