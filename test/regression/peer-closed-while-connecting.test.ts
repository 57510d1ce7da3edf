import { type AddressInfo, createServer, type Socket } from "node:net";
import { service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { openEngine } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Ping = service("ping.v1", { ping: unary() });

// They waited for a peer that does not answer: until connectTimeoutMs, or their own deadline.
describe("calls that wait for a peer's session", () => {
  it.each(["peer", "engine"])("end when the %s is closed", async (what) => {
    const tcp = providers.find(({ name }) => name === "tcp over IPv4");
    const first = await openEngine({ listen: tcp?.freshUrl() as string });
    const url = first.urls[0] as string;
    const client = await openEngine({ connectTimeoutMs: 60_000 }, true);
    const peer = await client.connect(url);
    await first.close();
    await until(() => peer.state === "lost", "the loss is known");
    const sockets: Socket[] = [];
    const mute = createServer((socket) => sockets.push(socket));
    await new Promise<void>((resolve) => mute.listen(Number(new URL(url).port), "127.0.0.1", resolve));
    expect((mute.address() as AddressInfo).port).toBe(Number(new URL(url).port));
    const call = failure(peer.client(Ping).ping({ timeoutMs: 60_000 }));
    await until(() => peer.state === "connecting", "the connect is under way");
    if (what === "peer") peer.close();
    else await client.close();
    expect(await call).toMatchObject({ code: "unavailable", origin: "local" });
    expect(client.stats().deadlines).toBe(0);
    await client.close();
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => mute.close(resolve));
  });
});
