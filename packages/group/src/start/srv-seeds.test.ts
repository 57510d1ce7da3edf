import { RpcError } from "cinnabar/standard";
import { expect, it } from "vitest";
import { srvSeeds } from "./srv-seeds.ts";

const name = "_cinnabar._tcp.store.example.com";
const record = (host: string, port: number, priority: number) => ({ name: host, port, priority, weight: 5 });

it("gives the same order everywhere: by priority, host and port", async () => {
  const records = [
    record("b.example.com", 7400, 10),
    record("a.example.com", 7401, 10),
    record("last.example.com.", 7400, 20),
    record("a.example.com", 7400, 10),
  ];
  const expected = [
    "tcp://a.example.com:7400",
    "tcp://a.example.com:7401",
    "tcp://b.example.com:7400",
    "tcp://last.example.com:7400",
  ];
  expect(await srvSeeds(name, { resolve: async () => records })).toEqual(expected);
  expect(await srvSeeds(name, { resolve: async () => records.reverse() })).toEqual(expected);
  const [url] = await srvSeeds(name, { resolve: async () => records, scheme: "verbs" });
  expect(url).toBe("verbs://a.example.com:7400");
});

it("fails where there are no members", async () => {
  const cause = Object.assign(new Error(`querySrv ENOTFOUND ${name}`), { code: "ENOTFOUND" });
  const unknown = await srvSeeds(name, { resolve: () => Promise.reject(cause) }).catch((error) => error);
  expect(unknown).toBeInstanceOf(RpcError);
  expect(unknown).toMatchObject({ code: "unavailable", cause });
  for (const records of [[], [record(".", 0, 0)]])
    await expect(srvSeeds(name, { resolve: async () => records })).rejects.toThrow("it has no SRV records");
  await expect(srvSeeds(name, { scheme: "shm" as never })).rejects.toThrow("scheme must be");
  await expect(srvSeeds(name, { resolver: 1 } as never)).rejects.toThrow('unknown option "resolver"');
});
