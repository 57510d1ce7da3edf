import { Engine, implement, service, unary } from "cinnabar";
import { afterEach, expect, it, vi } from "vitest";
import { z } from "zod";
import { MemPort } from "../../src/fabric/mem-port.ts";
import { failure } from "../matrix/wait.ts";

const Echo = service("echo.v1", { echo: unary({ input: z.number(), output: z.number() }) });
const serve = [implement(Echo, { echo: (n) => n })];

afterEach(() => vi.restoreAllMocks());

/** The next messages end with this status, as over verbs those do whose connection broke before they were posted. */
function lose(messages: number, status: number): void {
  const { send } = MemPort.prototype;
  vi.spyOn(MemPort.prototype, "send").mockImplementation(function (
    this: MemPort,
    ...[address, slot, bytes, owner]
  ) {
    if (messages-- <= 0) return send.call(this, address, slot, bytes, owner);
    this.returnSlot(slot);
    queueMicrotask(() => owner.onSent(status));
  });
}

it.each([5, 125])("a hello that fails with error %i is said again, while there is time", async (status) => {
  await using server = await Engine.open({ listen: `mem://broken-${status}`, serve });
  await using client = await Engine.open();
  lose(3, status);
  const peer = await client.connect(server.urls[0] as string);
  expect(await peer.client(Echo).echo(1)).toBe(1);
  lose(Number.POSITIVE_INFINITY, status);
  const error = await failure(client.connect(server.urls[0] as string, { timeoutMs: 100 }));
  expect(error).toMatchObject({ code: "unavailable", fabric: { op: "fi_send", code: status } });
});

it("a hello that fails for another reason is not", async () => {
  await using server = await Engine.open({ listen: "mem://refusing", serve });
  await using client = await Engine.open();
  lose(1, 93);
  expect(await failure(client.connect(server.urls[0] as string))).toMatchObject({
    code: "failed_precondition",
  });
});
