// What a process does before its first call, told to whoever started it as milliseconds since the process began:
// `start.js [URL]`. Without a URL it does nothing but to say so.
const [, , listen] = process.argv;
const begunMs = performance.now();
let importedMs = begunMs;
let openedMs = begunMs;
if (listen !== undefined) {
  const { Engine } = await import("cinnabar");
  importedMs = performance.now();
  const engine = await Engine.open({ listen });
  openedMs = performance.now();
  await engine.close();
}
process.send?.({ begunMs, importedMs, openedMs });
process.disconnect?.();

export interface Start {
  readonly begunMs: number;
  readonly importedMs: number;
  readonly openedMs: number;
}
