import { spawn } from "node:child_process";
import { constants } from "node:fs";
import { access, readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { Progress } from "../progress.ts";
import { nbdExport } from "./contract.ts";
import type { DiskServer } from "./disk-server.ts";
import type { Plan } from "./plan.ts";
import type { Result } from "./report.ts";
import { blockBytes, isStamped, newGeneration, stamp } from "./stamps.ts";

const programs = ["qemu-img", "nbdcopy"];

/** The first of the programs that is not on the PATH. */
export async function missingProgram(more: readonly string[] = []): Promise<string | undefined> {
  const folders = (process.env.PATH ?? "").split(delimiter);
  for (const program of [...programs, ...more]) {
    const found = await Promise.any(
      folders.map((folder) => access(join(folder, program), constants.X_OK)),
    ).then(
      () => true,
      () => false,
    );
    if (!found) return program;
  }
  return undefined;
}

/** Writes an image by qemu-img under kills, another one by nbdcopy without, and reads both back by nbdcopy. */
export async function useByNbdClients(server: DiskServer, plan: Plan): Promise<Result> {
  const { blocks, kills, folder, signal } = plan;
  const { nbd } = server.doors;
  const bytes = blocks * blockBytes;
  const [image, back] = [join(folder, "image"), join(folder, "back")];
  const uri = uriOf(nbd);
  let verified = 0;

  const underKills = newGeneration();
  await writeFile(image, imageOf(blocks, underKills));
  const progress = new Progress(`nbd: writing, ${kills} kills`, bytes);
  let [killed, percent] = [0, 0];
  let restarts = Promise.resolve();
  await convert(nbd, nbdExport, image, signal, (told) => {
    progress.add(((told - percent) / 100) * bytes);
    percent = told;
    if (killed === kills || percent < (100 * (killed + 1)) / (kills + 1)) return;
    killed++;
    restarts = restarts.then(() => server.killAndRestart());
    restarts.catch(() => {});
  });
  await restarts;
  progress.done();
  if (killed < kills) throw new Error(`qemu-img had ended after ${killed} of ${kills} kills`);
  await runProgram("nbdcopy", [uri, back], signal);
  verified += countStamped(await readFile(back), underKills);

  const quiet = newGeneration();
  await writeFile(image, imageOf(blocks, quiet));
  console.log("nbd: writing …");
  let startedMs = performance.now();
  await runProgram("nbdcopy", ["--flush", image, uri], signal);
  const writeMs = performance.now() - startedMs;
  startedMs = performance.now();
  await runProgram("nbdcopy", [uri, back], signal);
  const readMs = performance.now() - startedMs;
  verified += countStamped(await readFile(back), quiet);
  return {
    ...{ over: "nbd", client: programs.join(", "), blocks: 2 * blocks, verified, kills, isByBlocks: false },
    ...{ whole: { bytes, writeMs, readMs }, longestMs: undefined },
  };
}

/** What clients of NBD connect to. */
export const uriOf = (path: string, name: string = nbdExport): string =>
  `nbd+unix:///${name}?socket=${encodeURIComponent(path)}`;

/**
 * Writes an image by qemu-img, which connects again by itself, and sends again what had no answer. It is held back so
 * that kills meet it at work.
 */
export async function convert(
  path: string,
  name: string,
  image: string,
  signal: AbortSignal,
  told: (percent: number) => void = () => {},
): Promise<void> {
  const to = `driver=nbd,server.type=unix,server.path=${path},export=${name},reconnect-delay=30`;
  const args = ["convert", "-p", "-n", "-W", "-r", "32M", "-f", "raw", "--target-image-opts", image, to];
  await runProgram("qemu-img", args, signal, (text) => {
    const percent = /\((\d+\.\d+)\/100%\)\s*$/.exec(text)?.[1];
    if (percent !== undefined) told(Number(percent));
  });
}

export function imageOf(blocks: number, generation: number): Buffer {
  const image = Buffer.alloc(blocks * blockBytes);
  for (let block = 0; block < blocks; block++) stamp(blockAt(image, block), block, generation);
  return image;
}

export function countStamped(image: Buffer, generation: number): number {
  let right = 0;
  for (let block = 0; block < image.length / blockBytes; block++)
    if (isStamped(blockAt(image, block), block, generation)) right++;
  return right;
}

const blockAt = (image: Buffer, block: number): Buffer =>
  image.subarray(block * blockBytes, (block + 1) * blockBytes);

/** Runs a program to its end. @throws Error with what it complained about. */
export async function runProgram(
  program: string,
  args: readonly string[],
  signal: AbortSignal,
  said: (text: string) => void = () => {},
): Promise<void> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], signal });
  child.stdout.setEncoding("utf8").on("data", said);
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (complaint += text));
  await new Promise<void>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (status, ending) => {
      if (status === 0) resolve();
      else reject(new Error(`${program} ended with ${ending ?? status}: ${complaint.trim()}`));
    });
  });
}
