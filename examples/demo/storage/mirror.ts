import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { formatCount } from "../report.ts";
import { DiskServer } from "./disk-server.ts";
import { convert, countStamped, imageOf, runProgram, uriOf } from "./nbd.ts";
import type { Plan } from "./plan.ts";
import { mirrorExport, QemuMirror } from "./qemu-mirror.ts";
import { blockBytes, newGeneration } from "./stamps.ts";

const programs = ["two servers", "QEMU's quorum over both", "qemu-img writes", "nbdcopy reads and copies"];

/**
 * A disk on two servers. Each is killed in the middle of writes, comes back with what it missed, and carries the disk
 * alone at the end.
 *
 * @returns whether every block was right, and both files are equal
 */
export async function runMirror(plan: Plan): Promise<boolean> {
  const { blocks, folder, signal } = plan;
  const bytes = blocks * blockBytes;
  console.log(`${programs.join(", ")}: ${formatCount(blocks)} blocks`);
  const files = [join(folder, "one.img"), join(folder, "two.img")] as const;
  const servers: DiskServer[] = [];
  let mirror: QemuMirror | undefined;
  try {
    for (const [index, file] of files.entries()) {
      const doors = {
        ...{ shm: `shm://cinnabar-demo-${process.pid}-${index}`, tcp: "tcp://127.0.0.1:0" },
        ...{ nvmePort: 0, nbd: join(folder, `disk${index}.sock`) },
      };
      servers.push(await DiskServer.start({ file, bytes, doors }));
    }
    const [one, two] = servers as [DiskServer, DiskServer];
    mirror = await QemuMirror.start(folder, [one.doors.nbd, two.doors.nbd]);
    let isRight = true;
    for (const [index, lost, other] of [[1, two, one] as const, [0, one, two] as const]) {
      const generation = newGeneration();
      const missed = await writeUnderKill(mirror.path, generation, lost, plan);
      isRight = (await hasAll(mirror.path, generation, plan)) && isRight;
      const name = index === 1 ? "two" : "one";
      console.log(`  server ${name} was killed and missed ${formatCount(await missed(files[index]))} blocks`);
      // It must be out before it is back: the mirror would read old blocks from it.
      await mirror.drop(index);
      await lost.restart();
      await runProgram("nbdcopy", ["--flush", uriOf(other.doors.nbd), uriOf(lost.doors.nbd)], signal);
      await mirror.add(index, lost.doors.nbd);
      const [first, second] = await Promise.all(files.map((file) => readFile(file)));
      const isEqual = first?.equals(second as Buffer) === true;
      console.log(`  it is back: both files are ${isEqual ? "equal" : "NOT EQUAL"}, block by block`);
      isRight &&= isEqual;
    }
    // The first one to serve reads is gone: the other one has the same.
    const generation = newGeneration();
    await convert(mirror.path, mirrorExport, await imageIn(folder, blocks, generation), signal);
    await two.kill();
    isRight = (await hasAll(mirror.path, generation, plan)) && isRight;
    console.log(isRight ? "every block was right" : "SOME BLOCKS WERE WRONG");
    return isRight;
  } finally {
    await mirror?.end();
    await Promise.all(servers.map((server) => server.end()));
  }
}

/** Writes the whole disk, and kills a server in the middle. Gives what says how many blocks its file has missed. */
async function writeUnderKill(
  path: string,
  generation: number,
  lost: DiskServer,
  { blocks, folder, signal }: Plan,
): Promise<(file: string) => Promise<number>> {
  const image = await imageIn(folder, blocks, generation);
  let killed: Promise<void> | undefined;
  await convert(path, mirrorExport, image, signal, (percent) => {
    if (percent >= 40) killed ??= lost.kill();
  });
  if (killed === undefined) throw new Error("qemu-img had ended before the server was killed");
  await killed;
  return async (file) => blocks - countStamped(await readFile(file), generation);
}

async function hasAll(path: string, generation: number, { blocks, folder, signal }: Plan): Promise<boolean> {
  const back = join(folder, "back");
  await runProgram("nbdcopy", [uriOf(path, mirrorExport), back], signal);
  return countStamped(await readFile(back), generation) === blocks;
}

async function imageIn(folder: string, blocks: number, generation: number): Promise<string> {
  const image = join(folder, "image");
  await writeFile(image, imageOf(blocks, generation));
  return image;
}
