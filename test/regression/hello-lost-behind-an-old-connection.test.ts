import { once } from "node:events";
import { createServer } from "node:net";
import { Engine, implement, service, unary } from "cinnabar";
import { expect, it } from "vitest";
import { z } from "zod";

const Echo = service("echo.v1", { echo: unary({ input: z.number(), output: z.number() }) });
const serve = [implement(Echo, { echo: (n) => n })];

// libfabric 1.17 may lose a message that is posted before it has seen the end of the former connection to the same
// address, and says nothing.
it("a call right after its tcp server was closed reaches the one that opens there later", async () => {
  const first = await Engine.open({ listen: "tcp://127.0.0.1:0", serve });
  const url = first.urls[0] as string;
  await using engine = await Engine.open();
  const peer = await engine.connect(url);
  const { echo } = peer.client(Echo);
  expect(await echo(1)).toBe(1);

  await first.close();
  await expect.poll(() => peer.state, { timeout: 20_000, interval: 1 }).toBe("lost");
  // Somebody else has the port for a moment, so that the hello cannot find the new server by luck.
  const stranger = createServer();
  stranger.listen(Number(url.split(":").at(-1)), "127.0.0.1");
  await once(stranger, "listening");
  const answer = echo(2);
  expect(peer.state).toBe("connecting");
  stranger.close();
  await once(stranger, "close");
  await using second = await Engine.open({ listen: url, serve });
  expect(await answer).toBe(2);
  expect(second.urls).toEqual([url]);
});
