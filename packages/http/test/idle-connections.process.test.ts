import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { expect, it, onTestFinished } from "vitest";
import { httpHandler, toNodeHandler } from "../src/index.ts";
import { allMethods, greeter } from "./services.test-support.ts";

/** Half of them had a call, and the others have sent nothing. */
const holder = `
  import { connect } from "node:net";
  import { once } from "node:events";
  const [port, count] = process.argv.slice(1).map(Number);
  const call =
    "POST /greeter.v1/ping HTTP/1.1\\r\\nhost: x\\r\\ncontent-type: application/json\\r\\ncontent-length: 2\\r\\n\\r\\n{}";
  const held = [];
  for (let from = 0; from < count; from += 100) {
    held.push(...(await Promise.all(Array.from({ length: Math.min(100, count - from) }, async (_, i) => {
      const socket = connect({ port, host: "127.9.0.1", localAddress: "127.9.0.1" });
      await once(socket, "connect");
      if (i % 2 === 0) {
        socket.write(call);
        await once(socket, "data");
      }
      return socket;
    }))));
  }
  console.log("held " + held.length);
`;

/** What two processes can hold, each with descriptors left for other things: 10,000 where the limit is 12,000 or more. */
function connectionsHere(): number {
  const [, soft = "0"] = /^Max open files +(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
  return Math.min(10_000, Number(soft) - 2000);
}

it("answers others, and takes little memory, while a client holds 10,000 connections that are idle", async () => {
  const count = connectionsHere();
  expect(count, "the limit of open files leaves no room for this test").toBeGreaterThan(1000);
  const { implementation } = greeter();
  const handler = httpHandler({ services: [implementation], allow: allMethods });
  // The connections stay for as long as the test looks at them.
  const server = createServer(
    { keepAliveTimeout: 600_000, headersTimeout: 0, requestTimeout: 0 },
    toNodeHandler(handler),
  );
  // An address of its own: 10,000 ports of 127.0.0.1 would be missing where other tests listen again at theirs.
  server.listen({ port: 0, host: "127.9.0.1", backlog: 4096 });
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  onTestFinished(async () => {
    server.close();
    server.closeAllConnections();
    await handler.close();
  });
  const before = process.memoryUsage().rss;
  const client = spawn(process.execPath, ["--input-type=module", "--eval", holder, `${port}`, `${count}`], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, NODE_OPTIONS: "" },
  });
  onTestFinished(() => void client.kill("SIGKILL"));
  expect((await once(createInterface(client.stdout), "line"))[0]).toBe(`held ${count}`);
  const connections = promisify(server.getConnections.bind(server));
  expect(await connections()).toBe(count);
  // Some 13 kB each were measured. Four times that shows what is kept for each.
  expect((process.memoryUsage().rss - before) / count).toBeLessThan(52_000);
  for (let i = 0; i < 20; i++) {
    const response = await fetch(`http://127.9.0.1:${port}/greeter.v1/ping`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: "{}",
    });
    expect([response.status, await response.json()]).toEqual([200, {}]);
  }
  client.kill("SIGKILL");
  await expect.poll(connections, { timeout: 60_000, interval: 20 }).toBeLessThan(10);
});
