import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type Engine, service, unary } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { startProgram } from "../../packages/cli/test/support/command-line.ts";
import { endAll, ends, track } from "../../packages/cli/test/support/watched-server.ts";
import { endAllPeers, openEngine } from "./support/peers.ts";
import { greeting } from "./support/tcp-bytes.ts";

const Calls = service("calls.v1", { make: unary() });
const key = Buffer.alloc(32, 7);

const program = `
  import { Engine, implement, service, unary } from "cinnabar/standard";
  const calls = implement(service("calls.v1", { make: unary() }), { make() {} });
  const key = Buffer.alloc(32, 7);
  const secured = (psk) => (process.argv[1] === "sealed" ? { security: { psk } } : {});
  const server = secured({ lookup: () => key });
  const engine = await Engine.open({ listen: "tcp://127.0.0.1:0", heartbeatMs: 20_000, serve: [calls], ...server });
  // What the provider reads without having written it is what these have left.
  for (let index = 0; index < 4; index++) {
    const client = await Engine.open(secured({ identity: "other", key }));
    await client.connect(engine.urls[0]);
    await client.close();
  }
  console.log(new URL(engine.urls[0]).port);`;

afterEach(async () => {
  await endAll();
  await endAllPeers();
});

/**
 * A server, and a client that reaches it through somebody who records what the client says. The provider compares what a
 * new connection says with memory that it has not written: the server's fresh memory is filled, so that both differ.
 */
async function openRecorded(kind: string) {
  const env = { MALLOC_PERTURB_: "90" };
  const server = track(startProgram(["--input-type=module", "-e", program, "--", kind], { env }));
  const port = Number((await server.lines(1))[0]);
  const said: Buffer[] = [];
  const recorder = createServer((inside) => {
    const outside = connect(port, "127.0.0.1");
    inside.on("data", (data) => said.push(data)).pipe(outside);
    outside.pipe(inside);
    for (const each of [inside, outside]) each.on("error", () => {});
  }).listen(0, "127.0.0.1");
  await once(recorder, "listening");
  ends.push(() => recorder.close());
  const security = kind === "sealed" ? { security: { psk: { identity: "client", key } } } : {};
  const engine = await openEngine({ heartbeatMs: 20_000, ...security });
  const peer = await engine.connect(`tcp://127.0.0.1:${(recorder.address() as AddressInfo).port}`);
  const calls = peer.client(Calls, { timeoutMs: 60_000 });
  await calls.make();
  return { port, engine, calls, recorded: () => Buffer.concat(said) };
}

/** Sends bytes by a connection of its own, and resolves when the server has ended it. */
async function impostor(port: number, bytes: Buffer): Promise<void> {
  const socket: Socket = connect(port, "127.0.0.1");
  ends.push(() => socket.destroy());
  const ended = new Promise<void>((resolve) => socket.on("close", () => resolve()));
  socket.on("error", () => {}).on("data", () => {});
  socket.write(bytes);
  await ended;
}

function expectUnharmed(engine: Engine): void {
  expect(engine.stats().counters).toMatchObject({ callsFailed: 0, sessionsLost: 0, sessionsOpened: 1 });
}

// To the provider, two connections that say to listen at one port are one peer's: it closes the first of them.
describe.each(["sealed", "plain"])("a living connection of a %s session", (kind) => {
  it("goes on while its bytes are played again beside it", { timeout: 120_000 }, async () => {
    const { port, engine, calls, recorded } = await openRecorded(kind);
    for (let round = 0; round < 20; round++) {
      const [, made] = await Promise.all([impostor(port, recorded()), calls.make()]);
      expect(made).toBeUndefined();
    }
    expectUnharmed(engine);
  });

  it("goes on while another process claims its address", { timeout: 120_000 }, async () => {
    const { port, engine, calls, recorded } = await openRecorded(kind);
    const hello = recorded().subarray(0, greeting().byteLength);
    for (const pid of [0, 1, process.pid + 1, 0xffff_ffff]) {
      const claim = Buffer.from(hello);
      claim.writeUInt32BE(pid, 36);
      await Promise.all([impostor(port, claim), calls.make()]);
      await calls.make();
    }
    expectUnharmed(engine);
  });
});
