import { expect, it } from "vitest";
import { memoryDevice } from "../device/memory-device.ts";
import { NvmeTarget } from "../nvme/target.ts";

const newTarget = () =>
  NvmeTarget.open({
    subsystems: [
      { nqn: "nqn.2026-11.test:disk", namespaces: [memoryDevice({ bytes: 2 ** 20 })], hosts: "any" },
    ],
  });

it("says why it cannot listen, and the target stays as it is", async () => {
  await using target = newTarget();
  const listening = target.listenRdma({ host: "127.0.0.1", port: 0 });
  await expect(listening).rejects.toThrow(/^NvmeTarget\.listenRdma: cannot listen: \S/);
  expect(target.stats()).toMatchObject({ open: 0, inHandshake: 0, refused: 0, controllers: 0, ioQueues: 0 });
});

it.each<[string, object, RegExp]>([
  ["no host", {}, /NvmeTarget\.listenRdma: .*host/],
  ["a port that there is not", { host: "127.0.0.1", port: 65_536 }, /port must be/],
  ["too little memory for data", { host: "127.0.0.1", dataBytes: 4096 }, /dataBytes must be/],
  ["no time for a stall", { host: "127.0.0.1", stallTimeoutMs: 0 }, /stallTimeoutMs must be/],
])("refuses %s", async (_, options, expected) => {
  await using target = newTarget();
  await expect(target.listenRdma(options as { host: string })).rejects.toThrow(expected);
});
