import {
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { NvmeHost } from "../host/nvme-host.ts";
import { NvmeTarget } from "../nvme/target.ts";
import { HostQueue } from "../tcp/host.test-support.ts";
import { openFileDevice } from "./file-device.ts";
import { losesPower } from "./loses-power.ts";
import { memoryDevice } from "./memory-device.ts";

const uuidText = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
let folder = "";
const at = (name: string) => join(folder, name);

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-identity-"));
});
afterEach(() => rm(folder, { recursive: true }));

async function uuidOf(
  name: string,
  options: { readonly isReadOnly?: boolean; readonly isShared?: boolean } = {},
): Promise<string> {
  const size = options.isReadOnly ? {} : { bytes: 65_536 };
  await using device = await openFileDevice(at(name), { ...size, ...options });
  expect(device.uuid).toMatch(uuidText);
  return device.uuid;
}

describe("the identity of a file", () => {
  it("stays, by each of its names, however it is opened, and when it grows", async () => {
    const uuid = await uuidOf("a.img");
    expect(await readFile(at("a.img.uuid"), "utf8")).toContain(uuid);
    await symlink("a.img", at("link.img"));
    expect(await uuidOf("link.img")).toBe(uuid);
    expect(await uuidOf("a.img", { isReadOnly: true })).toBe(uuid);
    await using longer = await openFileDevice(at("a.img"), { bytes: 131_072 });
    expect(longer.uuid).toBe(uuid);
    expect((await readdir(folder)).sort()).toEqual(["a.img", "a.img.uuid", "link.img"]);
  });

  it("is one for all that open the file at the same time", async () => {
    await writeFile(at("b.img"), Buffer.alloc(65_536));
    const uuids = await Promise.all(Array.from({ length: 8 }, () => uuidOf("b.img", { isShared: true })));
    expect(new Set(uuids).size).toBe(1);
  });

  it("is not that of a copy, nor of a file that replaces it", async () => {
    const uuid = await uuidOf("c.img");
    for (const end of ["", ".uuid"]) await copyFile(at(`c.img${end}`), at(`d.img${end}`));
    expect(await uuidOf("d.img")).not.toBe(uuid);
    await writeFile(at("new.img"), Buffer.alloc(65_536));
    await rename(at("new.img"), at("c.img"));
    expect(await uuidOf("c.img", { isReadOnly: true })).not.toBe(uuid);
    expect(await uuidOf("c.img")).not.toBe(uuid);
  });

  it("comes from its name where none can be kept, and stays", async () => {
    await writeFile(at("e.img"), Buffer.alloc(65_536));
    const uuid = await uuidOf("e.img", { isReadOnly: true });
    expect(await uuidOf("e.img", { isReadOnly: true })).toBe(uuid);
    expect(await readdir(folder)).toEqual(["e.img"]);
    await mkdir(at("e.img.uuid"));
    expect(await uuidOf("e.img")).toBe(uuid);
    await rmdir(at("e.img.uuid"));
    expect(await uuidOf("e.img")).toBe(uuid);
    expect(await readdir(folder)).toContain("e.img.uuid");
  });

  it.each(["", "7a4d0c5e", "7a4d0c5e-9a3b-4b6a-8a53-3b8d1a1f6a10", "\u0000".repeat(100)])(
    "is made anew where the file beside it has %j",
    async (text) => {
      await writeFile(at("f.img.uuid"), text);
      const uuid = await uuidOf("f.img");
      expect(text).not.toContain(uuid);
      expect(await uuidOf("f.img")).toBe(uuid);
    },
  );

  it("is what the options say, and nothing is kept then", async () => {
    const uuid = "7A4D0C5E-9A3B-4B6A-8A53-3B8D1A1F6A10";
    await using device = await openFileDevice(at("g.img"), { bytes: 65_536, uuid });
    expect(device.uuid).toBe(uuid.toLowerCase());
    expect(await readdir(folder)).toEqual(["g.img"]);
    expect(memoryDevice({ bytes: 4096, uuid }).uuid).toBe(uuid.toLowerCase());
    expect(losesPower(device).uuid).toBe(device.uuid);
    for (const wrong of ["", "disk", `${uuid}0`, "00000000-0000-0000-0000-000000000000"])
      expect(() => memoryDevice({ bytes: 4096, uuid: wrong })).toThrow(
        `memoryDevice: uuid must be a UUID such as 7a4d0c5e-9a3b-4b6a-8a53-3b8d1a1f6a10, it is`,
      );
  });
});

describe("hosts of a subsystem", () => {
  const nqn = "nqn.2026-11.test:disk";

  async function seenAt(target: NvmeTarget): Promise<string> {
    const control = await HostQueue.open(target.address.port);
    await control.greet();
    await control.connect();
    await control.setProperty(0x14, 0x460001);
    return (await control.identify(3, 1)).data.toString("hex", 4, 20);
  }

  const serve = (name: string) =>
    openFileDevice(at(name), { bytes: 65_536, isShared: true }).then((device) =>
      NvmeTarget.listen({ subsystems: [{ nqn, namespaces: [device], hosts: "any" }], port: 0 }),
    );

  it("see one disk in two paths to a file, and never in two files under one name", async () => {
    await using first = await serve("a.img");
    await using path = await serve("a.img");
    await using other = await serve("b.img");
    expect(await seenAt(path)).toBe(await seenAt(first));
    expect(await seenAt(other)).not.toBe(await seenAt(first));
    await using host = await NvmeHost.connect({ nqn, paths: [first.address, other.address, path.address] });
    const connected = () => host.stats().paths.map(({ isConnected }) => isConnected);
    await expect.poll(connected).toEqual([true, false, true]);
    await expect
      .poll(() => host.stats().paths[1]?.lastError?.message)
      .toBe("this path leads to other namespaces than the first one");
  });

  it("do not see one disk under two numbers", () => {
    const device = memoryDevice({ bytes: 4096 });
    const subsystem = { nqn, namespaces: [device, device], hosts: "any" as const };
    expect(() => NvmeTarget.open({ subsystems: [subsystem] })).toThrow(
      `subsystems[0].namespaces[1] is a disk that is there already: ${device.uuid}`,
    );
  });
});
