import { mkdtemp, rm, stat } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { type FileAddon, fileAddon } from "cinnabar/native";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openFileBy } from "./file-device.ts";

const bytes = 1024 * 1024;
let folder = "";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-file-fallback-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const { EOPNOTSUPP, EINVAL, ENOLCK } = constants.errno;

/** A file system without holes, of an addon that is there. */
const without = (probe: number): FileAddon => {
  let calls = 0;
  return {
    zeroFile: async () => (calls++ === 0 ? probe : EOPNOTSUPP),
    findData: async () => EINVAL,
    lockFile: () => ENOLCK,
    deviceBytes: () => -EINVAL,
  };
};

it.each<[string, FileAddon | undefined, boolean]>([
  ["the addon", undefined, false],
  ["a file system with holes and locks", without(EOPNOTSUPP), false],
  ["a file system that makes holes always", without(0), true],
])("a file without %s keeps what is trimmed, or has zeroes there if it says so", async (_, addon, isZero) => {
  const path = join(folder, `${isZero}.img`);
  await using device = await openFileBy(addon, path, { bytes });
  await using other = await openFileBy(addon, path, { bytes });
  const data = Buffer.alloc(bytes, 7);
  await device.write(0, data);
  await device.flush();
  const { blocks } = await stat(path);
  expect(device.trimsToZero).toBe(isZero);
  await device.trim(0, 65_536);
  if (isZero) data.fill(0, 0, 65_536);
  expect(await other.compare(0, data)).toBe(true);
  await expect(device.writeZeroes(0, 8192, { onlyFast: true })).rejects.toMatchObject({
    code: "unsupported",
  });
  await device.writeZeroes(65_536, 65_536, { mayTrim: true });
  data.fill(0, 65_536, 131_072);
  expect(await other.compare(0, data)).toBe(true);
  expect(await device.extents(0, bytes)).toEqual([{ bytes, kind: "data" }]);
  await device.flush();
  expect((await stat(path)).blocks).toBe(blocks);
});

it("the addon says why it has no copy of a descriptor", async () => {
  const addon = fileAddon() as FileAddon;
  const closed = 1_000_000;
  expect(await addon.zeroFile(closed, 0, 4096, true)).toBe(constants.errno.EBADF);
  expect(await addon.findData(closed, 0, 4096, 2)).toBe(constants.errno.EBADF);
  expect(await addon.zeroFile(-1, 0, 4096, true)).toBe(EINVAL);
});
