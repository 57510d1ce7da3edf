import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Engine, Region } from "cinnabar";
import { BulkStream } from "cinnabar-bulk";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openEngine } from "../matrix/pair.ts";
import { untilTurn } from "../matrix/wait.ts";

setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

let warnings: Error[] = [];
const listen = (warning: Error) => void (warning.name === "CinnabarLeakWarning" && warnings.push(warning));
beforeEach(() => {
  warnings = [];
  process.on("warning", listen);
});
afterEach(() => void process.off("warning", listen));

/** In functions of their own, so that no frame keeps what they made. */
function forget(engine: Engine, count: number): void {
  for (let i = 0; i < count; i++) engine.expose(new Uint8Array(100 + i), { access: "read" });
}

function sliceOf(engine: Engine): Region<"read"> {
  return engine.expose(new Uint8Array(100), { access: "read" }).slice(10);
}

async function collected(condition: () => boolean, what: string): Promise<void> {
  await untilTurn(() => {
    collect();
    return condition();
  }, what);
}

it("regions that are forgotten are disposed, with one warning that says where they were exposed", async () => {
  const engine = await openEngine();
  forget(engine, 2);
  expect(engine.stats().regions).toBe(2);
  await collected(() => engine.stats().regions === 0 && warnings.length > 0, "the regions are collected");
  expect(warnings.map(({ message }) => message)).toEqual([
    expect.stringMatching(/^a region of 10[01] bytes was forgotten .*exposed at .*leak\.test\.ts:\d+/),
  ]);
});

/** What watches its calls knows it. */
function forgetWatched(engine: Engine): void {
  const region: Region = engine.expose(new Uint8Array(4), {
    access: "read",
    onGranted: () => () => region.dispose(),
  });
}

it("a region whose calls are watched by what knows it is found, too", async () => {
  const engine = await openEngine();
  forgetWatched(engine);
  await collected(() => engine.stats().regions === 0 && warnings.length > 0, "the region is collected");
});

it("a byte stream that was encoded, and went with no call, lets go of its ring without a warning", async () => {
  const engine = await openEngine();
  (() => JSON.stringify(new BulkStream(engine, "read", { chunkBytes: 4096 })))();
  expect(engine.stats().regions).toBe(1);
  await collected(() => engine.stats().regions === 0, "the ring is collected");
  expect(warnings).toEqual([]);
});

it("a region that is held, by itself or by a slice, is not taken for forgotten; nor is one that was disposed or closed", async () => {
  const engine = await openEngine();
  const slice = sliceOf(engine);
  const held = engine.expose(new Uint8Array(1), { access: "read" });
  (() => engine.expose(new Uint8Array(2), { access: "read" }).dispose())();
  (() => engine.expose(new Uint8Array(3), { access: "read" }))();
  await collected(() => warnings.length === 1, "the forgotten one is collected");
  expect(engine.stats().regions).toBe(2);
  slice.slice(5);
  held.dispose();
  await engine.close();
  forgetAfterClose(slice);
  collect();
  await new Promise(setImmediate);
  expect(warnings).toHaveLength(1);
});

it("a view of a mapped file that is forgotten stays valid", async () => {
  const engine = await openEngine();
  const path = join(tmpdir(), `forgotten-${process.pid}`);
  try {
    const view = await viewOfForgotten(engine, path);
    await collected(() => engine.stats().mappedFiles.files === 0 && warnings.length > 0, "it is collected");
    collect();
    expect([view.byteLength, view[99]]).toEqual([100, 5]);
  } finally {
    rmSync(path);
  }
});

async function viewOfForgotten(engine: Engine, path: string): Promise<Uint8Array> {
  const file = await engine.mapFile(path, { bytes: 100, access: "read" });
  return file.view(0).fill(5);
}

function forgetAfterClose(slice: Region): void {
  expect(slice.disposed).toBe(true);
}
