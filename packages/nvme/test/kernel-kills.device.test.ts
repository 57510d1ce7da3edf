import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openFileDevice } from "../src/index.ts";
import {
  connect,
  fio,
  freePort,
  isGuest,
  mib,
  pathsOf,
  serveFile,
  subsystemOf,
  verified,
} from "./kernel.test-support.ts";
import { openDisk, Stampers } from "./stamps.test-support.ts";

const bytes = 128 * mib;
const blocks = 1024;
const writers = 8;
/** Every two seconds one, in the long form for a minute. */
const kills = process.env.CINNABAR_LONG === "1" ? 30 : 3;
let folder = "";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-kernel-kills-"));
});
afterAll(() => rm(folder, { recursive: true }));

describe.skipIf(!isGuest)("Linux as host of a target", () => {
  it.each([
    ["tcp", ["--hdr-digest", "--data-digest"]],
    ["rdma", []],
  ] as const)(
    "that is killed every two seconds finds every acknowledged block, and fio verifies, over %s",
    async (carrier, digests) => {
      const nqn = `nqn.2026-11.test:killed-${carrier}`;
      const file = join(folder, `killed-${carrier}.img`);
      const port = await freePort();
      let target = await serveFile(file, port, nqn, bytes, carrier);
      const times = ["--reconnect-delay=1", "--ctrl-loss-tmo=60", "--keep-alive-tmo=5"];
      await using host = await connect(nqn, [port], [...digests, ...times], carrier);
      await using disk = await openDisk(host.disk, blocks);
      const stampers = new Stampers(blocks, writers);
      stampers.start(disk);
      let isOver = false;
      const verifying = (async () => {
        let verifiedBytes = 0;
        const where = [`--offset=${64 * mib}`, "--size=8M"];
        while (!isOver) {
          const job = await fio(
            host.disk,
            ...verified,
            ...where,
            "--rw=randwrite",
            "--bs=4k",
            "--iodepth=16",
          );
          verifiedBytes += job.read.io_bytes;
        }
        return verifiedBytes;
      })();
      verifying.catch(() => {});
      try {
        for (let kill = 0; kill < kills; kill++) {
          const before = stampers.written;
          await pause(2000);
          // The host needs a second at least before it tries again: the kill comes when it has gone on.
          await stampers.until(() => stampers.written > before);
          target.child.kill("SIGKILL");
          await target.ended;
          target = await serveFile(file, port, nqn, bytes, carrier);
        }
      } finally {
        isOver = true;
      }
      expect(await verifying).toBeGreaterThan(0);
      expect(await stampers.stop()).toEqual([]);
      await disk.flush();
      expect(await stampers.wrongBlocks(disk, "acknowledged")).toEqual([]);
      console.log(`${kills} kills: ${stampers.written} stamps, ${stampers.flushed} flushes`);
      await host.disconnect();
      target.child.kill("SIGTERM");
      expect(await target.ended).toMatchObject({ status: 143, stderr: "" });
      await using found = await openFileDevice(file, { isReadOnly: true });
      expect(await stampers.wrongBlocks(found, "acknowledged")).toEqual([]);
    },
    600_000,
  );

  it.each(["tcp", "rdma"] as const)(
    "that was stopped beyond the keep-alive finds no write of before, when it goes on, over %s",
    async (carrier) => {
      const nqn = `nqn.2026-11.test:stopped-${carrier}`;
      const file = join(folder, `stopped-${carrier}.img`);
      const ports = [await freePort(), await freePort()];
      const targets = await Promise.all(
        ports.map((port) => serveFile(file, port, nqn, bytes, carrier, ["--shared"])),
      );
      const times = ["--reconnect-delay=1", "--ctrl-loss-tmo=120", "--keep-alive-tmo=2"];
      await using host = await connect(nqn, ports, times, carrier);
      // Writes go to both targets in turn, on the one file.
      await writeFile(join(subsystemOf(nqn) ?? "", "iopolicy"), "round-robin");
      await using disk = await openDisk(host.disk, blocks);
      const stampers = new Stampers(blocks, writers);
      const stateOf = (target: number) => pathsOf(nqn).find(({ port }) => port === ports[target])?.state;
      for (const stopped of [0, 1]) {
        // The target is stopped while it is idle: it has not read the writes that follow.
        targets[stopped]?.child.kill("SIGSTOP");
        stampers.start(disk);
        // They go the other way when the host has given the path up, and newer ones follow them.
        await expect.poll(() => stateOf(stopped), { timeout: 60_000 }).toBe("connecting");
        const failedOver = stampers.written;
        await stampers.until(() => stampers.written > failedOver + 2 * blocks);
        expect(await stampers.stop()).toEqual([]);
        targets[stopped]?.child.kill("SIGCONT");
        await expect.poll(() => stateOf(stopped), { timeout: 60_000 }).toBe("live");
        await using found = await openFileDevice(file, { isReadOnly: true, isShared: true });
        expect(await stampers.wrongBlocks(found, "acknowledged")).toEqual([]);
      }
      await host.disconnect();
      for (const { child, ended } of targets) {
        child.kill("SIGTERM");
        expect(await ended).toMatchObject({ status: 143, stderr: "" });
      }
    },
    600_000,
  );
});
