import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { bulk, Engine, implement, service, unary } from "cinnabar";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { failure, until } from "../matrix/wait.ts";

const bytes = 1 << 20;
const Files = service("files.v1", {
  load: unary({ input: z.object({ into: bulk("write") }) }),
  store: unary({ input: z.object({ from: bulk("read") }) }),
  hold: unary({}),
});

/**
 * A link between a client and a server over `net`: all bytes pass through it in both directions, `perTurn` of them in
 * each of its turns.
 */
class Link {
  perTurn = Number.POSITIVE_INFINITY;
  readonly #queues: { readonly to: Socket; readonly chunks: Buffer[] }[] = [];
  readonly #timer = setInterval(() => this.#turn(), 5);

  static async to(port: number): Promise<{ link: Link; url: string }> {
    const link = new Link();
    const server = createServer((near) => {
      const far = connect(port, "127.0.0.1");
      link.#join(near, far);
      link.#join(far, near);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => {
      clearInterval(link.#timer);
      for (const { to } of link.#queues) to.destroy();
      server.close();
    });
    return { link, url: `net://127.0.0.1:${(server.address() as AddressInfo).port}` };
  }

  #join(from: Socket, to: Socket): void {
    const chunks: Buffer[] = [];
    this.#queues.push({ to, chunks });
    from.on("data", (chunk) => chunks.push(chunk));
    from.on("error", () => {});
    from.on("close", () => to.destroy());
  }

  #turn(): void {
    for (const { to, chunks } of this.#queues)
      for (let left = this.perTurn; left > 0 && chunks.length > 0; ) {
        const chunk = chunks.shift() as Buffer;
        const taken = chunk.subarray(0, left);
        left -= taken.byteLength;
        if (taken.byteLength < chunk.byteLength) chunks.unshift(chunk.subarray(taken.byteLength));
        to.write(taken);
      }
  }
}

async function linked() {
  const server = await Engine.open({
    listen: "net://127.0.0.1:0",
    heartbeatMs: 400,
    serve: [
      implement(Files, {
        load: async ({ into }, call) => void (await call.put(new Uint8Array(bytes), into)),
        store: async ({ from }, call) => void (await call.get(from, new Uint8Array(bytes))),
        hold: (_input, call) =>
          new Promise((resolve) => call.signal.addEventListener("abort", () => resolve())),
      }),
    ],
  });
  onTestFinished(() => server.close());
  const { link, url } = await Link.to(Number(new URL(server.urls[0] as string).port));
  const client = await Engine.open({ heartbeatMs: 400 });
  onTestFinished(() => client.close());
  const peer = await client.connect(url);
  const lost: string[] = [];
  peer.on("lost", ({ reason }) => lost.push(reason.message));
  return { link, client, files: peer.client(Files, { timeoutMs: 60_000 }), lost };
}

it.each(["load", "store"] as const)(
  "a session lives while bytes of its transfers come, though messages wait behind them: %s",
  async (method) => {
    const { link, client, files, lost } = await linked();
    // What is under way at once, half a mebibyte and more, takes longer than the bound.
    link.perTurn = 2048;
    const memory = new Uint8Array(bytes);
    await (method === "load"
      ? files.load({ into: client.expose(memory, { access: "write" }) })
      : files.store({ from: client.expose(memory, { access: "read" }) }));
    expect(lost).toEqual([]);
  },
);

it("a session ends where nothing comes any more, whatever this side sends", async () => {
  const { link, files, lost } = await linked();
  const held = failure(files.hold());
  const sending = setInterval(() => void files.hold({ timeoutMs: 1000 }).catch(() => {}), 5);
  onTestFinished(() => clearInterval(sending));
  link.perTurn = 0;
  await until(() => lost.length > 0, "the session is lost");
  expect(lost[0]).toContain("has been silent for");
  expect(await held).toMatchObject({ code: "unavailable" });
});
