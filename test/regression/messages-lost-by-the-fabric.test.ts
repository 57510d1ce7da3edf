import { bulk, Engine, type Implementation, implement, service, unary } from "cinnabar";
import { afterEach, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { MemPort } from "../../src/fabric/mem-port.ts";
import { frameKind } from "../../src/wire/frame.ts";
import { messageHeaderBytes, noNonce, nonceOffset } from "../../src/wire/message.ts";
import { failure, until } from "../matrix/wait.ts";

const Trial = service("trial.v1", {
  echo: unary({ input: z.number(), output: z.number() }),
  pause: unary({ input: z.number() }),
  keep: unary({ input: z.object({ region: bulk("read_write") }) }),
});

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const trial: Implementation = implement(Trial, {
  echo: (n) => n,
  pause,
  keep: (_, call) =>
    new Promise((_resolve, reject) =>
      call.signal.addEventListener("abort", () => reject(call.signal.reason)),
    ),
});

const send = MemPort.prototype.send;
afterEach(() => {
  MemPort.prototype.send = send;
});

/** Loses the next message whose first frame is of that kind: it arrives with the nonce of no session. */
function loseNext(kind: number): void {
  MemPort.prototype.send = function (address, slot, bytes, listener) {
    if (this.slabView.getUint8(slot + messageHeaderBytes) === kind) {
      MemPort.prototype.send = send;
      this.slabView.setBigUint64(slot + nonceOffset, noNonce.value, true);
    }
    send.call(this, address, slot, bytes, listener);
  };
}

let names = 0;

async function setUp() {
  const heartbeatMs = 200;
  const server = await Engine.open({ listen: `mem://lost.${++names}`, serve: [trial], heartbeatMs });
  const client = await Engine.open({ heartbeatMs });
  onTestFinished(async () => {
    await client.close();
    await server.close();
  });
  const peer = await client.connect(server.urls[0] as string);
  // Beyond the time limit of the test: only the loss itself can end a call.
  const api = peer.client(Trial, { timeoutMs: 600_000 });
  expect(await api.echo(1)).toBe(1);
  const expectServed = async () => {
    await until(
      () => client.stats().calls.out === 0 && server.stats().calls.in === 0,
      "the calls have ended",
    );
    expect(await api.echo(2)).toBe(2);
    const lost = [client, server].map((engine) => engine.stats().counters.messagesLost);
    expect((lost[0] as number) + (lost[1] as number)).toBe(1);
    expect(client.stats().counters.malformed + server.stats().counters.malformed).toBe(0);
  };
  return { server, client, api, expectServed };
}

it.each([
  ["request", frameKind.request],
  ["answer", frameKind.response],
])("a call whose %s is lost on the way fails with unavailable", async (_, kind) => {
  const { api, expectServed } = await setUp();
  loseNext(kind);
  expect(await failure(api.echo(3))).toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("1 of its messages were lost"),
  });
  await expectServed();
});

it("a lost request is noticed while the server goes on talking", async () => {
  const { server, api, expectServed } = await setUp();
  // An answer every 40 ms, so that the server is never silent for a quarter of a heartbeat; for twelve heartbeats.
  const answers = Array.from({ length: 60 }, (_, i) => api.pause(40 * i).catch((error) => error.code));
  // None of them waits to be sent: its number would show the loss.
  await until(
    () => server.stats().calls.in === 60 || server.stats().counters.requestsSucceeded > 1,
    "all have left",
  );
  loseNext(frameKind.request);
  expect(await failure(api.echo(3))).toMatchObject({ code: "unavailable" });
  expect(await answers.at(-1)).toBe("unavailable");
  await expectServed();
});

it("memory lent by a call whose cancel is lost comes back", async () => {
  const { client, api, expectServed } = await setUp();
  const region = client.expose(new Uint8Array(4096), { access: "read_write" });
  const abort = new AbortController();
  const kept = failure(api.keep({ region }, { signal: abort.signal }));
  await until(() => client.stats().counters.framesSent > 0 && region.grants === 1, "it is lent");
  loseNext(frameKind.cancel);
  abort.abort();
  expect(await kept).toMatchObject({ code: "cancelled" });
  await region.revoke();
  expect(region.grants).toBe(0);
  await expectServed();
});
