import { Engine, implement } from "cinnabar/standard";
import { afterEach, expect, it, vi } from "vitest";
import { Links, maxLinks } from "./links.ts";
import { Packets } from "./packets-service.ts";

const open: Engine[] = [];

afterEach(async () => {
  await Promise.all(open.splice(0).map((engine) => engine.close()));
});

async function start(...options: Parameters<typeof Engine.open>): Promise<Engine> {
  const engine = await Engine.open(...options);
  open.push(engine);
  return engine;
}

const packet = Uint8Array.of(1);
const soon = { timeout: 30_000, interval: 1 };

async function startBoth(urls: readonly string[]) {
  const arrived: Uint8Array[] = [];
  const serve = [implement(Packets, { packet: (bytes) => void arrived.push(bytes) })];
  const limits = { maxSessionsByPeer: 2 * maxLinks };
  const server = await start({ listen: urls, serve, limits });
  const engine = await start({ connectTimeoutMs: 60_000 });
  const onLost = vi.fn();
  return { server, engine, links: new Links(engine, 60_000, onLost), onLost, arrived };
}

it("of too many connections the one that was used longest ago is closed", async () => {
  const urls = Array.from({ length: maxLinks + 1 }, (_, place) => `mem://links-${place}`);
  const [first, second, last] = [urls[0], urls[1], urls[maxLinks]] as [string, string, string];
  const { engine, links, onLost, arrived } = await startBoth(urls);
  const opened = () => engine.stats().counters.sessionsOpened;
  const send = async (...to: string[]) => {
    const before = arrived.length;
    for (const url of to) links.send(url, packet);
    await vi.waitFor(
      () => expect([arrived.length, onLost.mock.calls]).toEqual([before + to.length, []]),
      soon,
    );
  };
  await send(...urls.slice(0, maxLinks));
  await send(first);
  await send(last);
  expect(onLost.mock.calls).toEqual([]);
  expect([links.size, engine.stats().sessions, opened()]).toEqual([maxLinks, maxLinks, maxLinks + 1]);
  await send(first);
  expect(opened()).toBe(maxLinks + 1);
  await send(second);
  expect([opened(), links.size]).toEqual([maxLinks + 2, maxLinks]);
});

it("messages wait for a connection in a bounded number, and further ones are lost", async () => {
  const { links, onLost, arrived } = await startBoth(["mem://links-bound"]);
  for (let sent = 0; sent < 20; sent++) links.send("mem://links-bound", packet);
  expect(onLost).toHaveBeenCalledTimes(4);
  await links.flush();
  await vi.waitFor(() => expect(arrived.length).toBe(16), soon);
  links.send("mem://links-bound", packet);
  await vi.waitFor(() => expect(arrived.length).toBe(17), soon);
});

it("messages to where nobody is, and to addresses that are none, are lost; later ones arrive", async () => {
  const { links, onLost, arrived } = await startBoth(["mem://links-here"]);
  links.send("mem://links-gone", packet);
  links.send("quantum://host:1", packet);
  await links.flush();
  expect(onLost).toHaveBeenCalledTimes(2);
  await start({
    listen: "mem://links-gone",
    serve: [implement(Packets, { packet: (bytes) => void arrived.push(bytes) })],
  });
  links.send("mem://links-gone", packet);
  await vi.waitFor(() => expect(arrived.length).toBe(1), soon);
});
