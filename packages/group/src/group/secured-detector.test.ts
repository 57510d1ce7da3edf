import { Engine } from "cinnabar/standard";
import { expect, it, vi } from "vitest";
import type { GroupDetectorOptions } from "./group-detector.ts";
import { joinGroup } from "./join-group.ts";
import { member, scripted } from "./scripted.test-support.ts";

const psk = { identity: "all", key: new Uint8Array(32).fill(5) };

async function join(engine: Engine, detector: GroupDetectorOptions): Promise<unknown> {
  const { authority } = scripted([{ ...member(0, 1, "tcp://127.0.0.1:1"), detector: detector.address }]);
  const urls = ["tcp://127.0.0.1:1"];
  return joinGroup("secured", { engine, urls, authority, detector });
}

it("a detector is not the way around the security of its member's engine", async () => {
  await using engine = await Engine.open({ security: { psk } });
  const address = "tcp://127.0.0.1:7948";
  await expect(join(engine, { address })).rejects.toThrow(
    `joinGroup: the engine has security, and its detector at ${address} has none; pass detector.security`,
  );
});

it.each(["localhost:7946", "tcp://0.0.0.0:7946", "mem://detector"])(
  "a detector at %s is refused before its member joins",
  async (address) => {
    await using engine = await Engine.open();
    const join = vi.fn();
    const authority = { join, observe: vi.fn() };
    const urls = ["tcp://127.0.0.1:1"];
    await expect(joinGroup("wrong", { engine, urls, authority, detector: { address } })).rejects.toThrow(
      `failure detector: "${address}"`,
    );
    expect(join).not.toHaveBeenCalled();
  },
);
