import { implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Storage = service("storage.v1", { load: unary({ input: z.string(), output: z.string() }) });
const Gateway = service("gateway.v1", { get: unary({ input: z.string(), output: z.string() }) });
const Late = service("late.v1", { where: unary({ output: z.string() }) });

const storage = implement(Storage, { load: (id) => `content of ${id}` });
const late = implement(Late, { where: () => "here" });

describe.each(transports)("serving over $name", (provider) => {
  it("takes a function of the engine, whose handlers call another service", async () => {
    const back = await openEngine({ listen: provider.freshUrl(), serve: [storage] });
    const front = await openEngine({
      listen: provider.freshUrl(),
      serve: async (engine) => {
        expect(engine.urls).toEqual([]);
        const client = engine.lazyPeer(back.urls[0] as string).client(Storage);
        return [implement(Gateway, { get: (id) => client.load(id) })];
      },
    });
    const caller = await openEngine();
    const gateway = (await caller.connect(front.urls[0] as string)).client(Gateway);
    expect(await gateway.get("a")).toBe("content of a");
  });

  it("adds services that connected peers can call, in both directions", async () => {
    const server = await openEngine({ listen: provider.freshUrl() });
    const client = await openEngine();
    const peer = await client.connect(server.urls[0] as string);
    expect(await failure(peer.client(Late).where())).toMatchObject({ code: "unimplemented" });
    server.serve(late);
    server.serve(storage);
    const api = peer.client(Late);
    // The news travels beside the calls: the first may still be too early.
    await expect.poll(() => api.where().catch((error) => error.code), { timeout: 20_000 }).toBe("here");
    expect(await peer.client(Storage).load("b")).toBe("content of b");
    client.serve(implement(Gateway, { get: (id) => id }));
    expect(await peer.client(Storage).load("c")).toBe("content of c");
  });

  it("tells peers that connect later of all services", async () => {
    const server = await openEngine({ listen: provider.freshUrl(), serve: [storage] });
    server.serve(late);
    const client = await openEngine();
    const peer = await client.connect(server.urls[0] as string);
    expect(await peer.client(Late).where()).toBe("here");
    expect(await peer.client(Storage).load("a")).toBe("content of a");
  });

  it("adds all or nothing, and nothing to a closed engine", async () => {
    const server = await openEngine({ listen: provider.freshUrl(), serve: [storage] });
    expect(() => server.serve(late, storage)).toThrow('service "storage.v1" is implemented twice');
    const client = await openEngine();
    const peer = await client.connect(server.urls[0] as string);
    expect(await failure(peer.client(Late).where())).toMatchObject({ code: "unimplemented" });
    await server.close();
    expect(() => server.serve(late)).toThrow("has been closed");
  });
});

it("refuses a table of a function that throws, and closes the engine", async () => {
  const open = openEngine({
    listen: "mem://never",
    serve: () => {
      throw new Error("no configuration");
    },
  });
  await expect(open).rejects.toThrow("no configuration");
  await using again = await openEngine({ listen: "mem://never" });
  expect(again.urls).toEqual(["mem://never"]);
});
