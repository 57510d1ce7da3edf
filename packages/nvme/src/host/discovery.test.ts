import { expect, it } from "vitest";
import { discoveryLog } from "../nvme/identify.ts";
import { readDiscoveryLog } from "./discovery.ts";

it("leaves out the discovery services that a service lists", async () => {
  const place = { transport: "tcp" as const, host: "127.0.0.1", port: 4420 };
  const log = discoveryLog(["nqn.test:another-service", "nqn.test:disk", "nqn.test:itself"], [place]);
  // As nvmet, the target of Linux, does.
  log.writeUInt8(1, 1024 + 2);
  log.writeUInt8(3, 3072 + 2);
  const found = await readDiscoveryLog({
    log: async (_, offset, bytes) => log.subarray(offset, offset + bytes),
  });
  expect(found).toEqual([{ nqn: "nqn.test:disk", transport: "tcp", host: "127.0.0.1", service: "4420" }]);
});
