import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Owner } from "../mapped-file/owner.ts";
import type { Reader } from "../mapped-file/reader.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { formatNumber } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const MiB = 1024 * 1024;
const fileBytes = 1024 * MiB;

interface Subject {
  readonly key: string;
  readonly title: string;
  readonly where: string;
  /** The last word of its figure. */
  readonly measure: string;
}

const subjects: readonly Subject[] = [
  {
    key: "shm",
    title: "Cinnabar shm",
    where: `shm://cinnabar-bench-file-${process.pid}`,
    measure: "get_gbps",
  },
  { key: "net-unix", title: "net unix", where: "unix", measure: "gbps" },
  { key: "tcp", title: "Cinnabar tcp", where: "tcp://127.0.0.1:0", measure: "get_gbps" },
  { key: "net-tcp", title: "net tcp", where: "tcp", measure: "gbps" },
  { key: "net", title: "Cinnabar net", where: "net://127.0.0.1:0", measure: "get_gbps" },
];

export const mapfile: Workload = {
  name: "mapfile",
  title: "A file of another process",
  about:
    "All of a file of 1 GiB in the page cache, read by another process: by gets of 1 MiB from a mapped file, four in " +
    "flight, and through a socket of node:net to which `createReadStream` is piped. Each round reads the file once.",
  families: ["mapfile"],
  selection: "whole",
  seconds: 16,

  async run(run: Run): Promise<readonly Figure[]> {
    const folder = await mkdtemp(join(tmpdir(), "cinnabar-bench-file-"));
    const started: { end(): Promise<void> }[] = [];
    try {
      const path = join(folder, "file");
      await writeFile(path);
      const readers: (readonly [Subject, Child<Reader>, number[]])[] = [];
      for (const subject of subjects) {
        if (run.contenders?.includes(subject.key) === false) continue;
        const { title, where } = subject;
        const module = (name: string) => new URL(`../mapped-file/${name}.js`, import.meta.url);
        const owner = await Child.start<Owner>(`${title}, owner`, module("owner"), [where, path]);
        started.push(owner);
        const address = await owner.ask("address");
        const reader = await Child.start<Reader>(`${title}, reader`, module("reader"), [where, address]);
        started.push(reader);
        readers.push([subject, reader, []]);
      }
      for (const [, reader] of readers) await reader.ask("read", fileBytes);
      for (let round = 1; round <= run.rounds; round++) {
        const told: string[] = [];
        for (const [{ title }, reader, rounds] of readers) {
          const gbps = fileBytes / (await reader.ask("read", fileBytes)) / 1e6;
          rounds.push(gbps);
          told.push(`${title} ${formatNumber(gbps)}`);
        }
        run.tell(`round ${round} of ${run.rounds}, GB/s: ${told.join(", ")}`);
      }
      return readers.map(([{ key, title, measure }, , rounds]) => ({
        name: `${key}.mapfile.${measure}`,
        subject: title,
        chart: "A file of 1 GiB, read by another process",
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

/** Writes the file, which then is in the page cache. */
async function writeFile(path: string): Promise<void> {
  const file = await open(path, "w");
  try {
    const piece = Uint8Array.from({ length: MiB }, (_, index) => index * 167);
    for (let written = 0; written < fileBytes; written += MiB) await file.write(piece);
  } finally {
    await file.close();
  }
}
