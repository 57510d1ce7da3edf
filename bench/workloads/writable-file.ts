import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Owner } from "../mapped-file/writable-owner.ts";
import type { Into, Op, Peer } from "../mapped-file/writable-peer.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { formatNumber } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const fileBytes = 4 * 1024 * 1024;
const ops: readonly Op[] = ["get", "put"];
const kinds: readonly Into[] = ["file", "memory"];

/** Over an RDMA device, bytes come into a file that is mapped for writing by way of other memory. */
export const writableFile: Workload = {
  name: "writable-file",
  title: "A file that is mapped for writing, over an RDMA device",
  about:
    "Transfers of 4 MiB into a file of the page cache that is mapped for writing, one under way, beside the same into " +
    "memory: gets into a file of this side, and puts into one of the peer. The bytes that arrive are compared, and those " +
    "that came by way of staging memory are counted. It needs `--verbs`, and a TMPDIR on a disk's file system.",
  families: ["writable_file"],
  selection: "named",
  seconds: 60,

  async run(run: Run): Promise<readonly Figure[]> {
    if (run.verbsHost === undefined) {
      run.lack("files over a device", "--verbs HOST names none");
      return [];
    }
    const folder = await mkdtemp(join(tmpdir(), "cinnabar-bench-writable-"));
    const started: { end(): Promise<void> }[] = [];
    try {
      const module = (name: string) => new URL(`../mapped-file/${name}.js`, import.meta.url);
      const owner = await Child.start<Owner>("the owner", module("writable-owner"), [
        `verbs://${run.verbsHost}:0`,
        join(folder, "of-owner"),
        fileBytes,
      ]);
      started.push(owner);
      const peer = await Child.start<Peer>("the peer", module("writable-peer"), [
        await owner.ask("address"),
        join(folder, "of-peer"),
        fileBytes,
      ]);
      started.push(peer);
      const staged = async () => (await owner.ask("staged")) + (await peer.ask("staged"));
      const figures = ops.flatMap((op) => kinds.map((into) => ({ op, into, rounds: [] as number[] })));
      for (let round = 1; round <= run.rounds; round++) {
        const told: string[] = [];
        for (const { op, into, rounds } of figures) {
          const before = await staged();
          const gbps = (await peer.ask("move", op, into, run.roundMs)) / 1e6;
          const isStaged = (await staged()) > before;
          if (isStaged !== (into === "file"))
            throw new Error(
              `${op} into ${into}: ${isStaged ? "staged" : "in place, as where TMPDIR is a tmpfs"}`,
            );
          rounds.push(gbps);
          told.push(`${op} into ${into} ${formatNumber(gbps)}`);
        }
        run.tell(`round ${round} of ${run.rounds}, GB/s: ${told.join(", ")}`);
      }
      return figures.map(({ op, into, rounds }) => ({
        name: `verbs.writable_file.${into}.${op}_gbps`,
        subject: `${op} into ${into === "file" ? "a mapped file" : "memory"}`,
        chart: "4 MiB into a file that is mapped for writing, and into memory",
        unit: "GB/s",
        better: "more",
        rounds,
        load: loadAverage(),
      }));
    } finally {
      for (const one of started.reverse()) await one.end();
      await rm(folder, { recursive: true });
    }
  },
};
