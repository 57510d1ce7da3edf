// What a process does before its first call: `program.js import MODULE`, `program.js open URL`, `program.js serve NAME
// ADDRESS`, or without arguments nothing. It reports its cost after each step to its parent, and ends.
import type { Contender } from "../contenders/contender.ts";

/** The cost since the process began. */
export interface Cost {
  readonly wallMs: number;
  /** Processor time of all threads, in the program and in the kernel. */
  readonly cpuMs: number;
}

export interface Start {
  readonly begun: Cost;
  /** After the import, where there was one. */
  readonly imported: Cost;
  /** After opening, where something was opened. */
  readonly opened: Cost;
  /** Resident memory at the end. */
  readonly residentBytes: number;
}

/** Modules by themselves, and what is loaded together. */
const modules: Readonly<Record<string, () => Promise<unknown>>> = {
  cinnabar: () => import("cinnabar"),
  standard: () => import("cinnabar/standard"),
  zod: () => import("zod"),
  grpc: () => import("@grpc/grpc-js"),
  "grpc-loader": () => Promise.all([import("@grpc/grpc-js"), import("@grpc/proto-loader")]),
};

/** Servers with a service, as the other workloads have them. */
const servers: Readonly<Record<string, (address: string) => Promise<Contender>>> = {
  cinnabar: async (address) => (await import("../contenders/cinnabar.ts")).cinnabar(address),
  grpc: async (address) => (await import("../contenders/grpc.ts")).grpcJs(address),
  net: async () => (await import("../contenders/net.ts")).netMsgpack({ host: "127.0.0.1", port: 0 }),
};

const costs: Cost[] = [];
const count = () => {
  const { user, system } = process.cpuUsage();
  costs.push({ wallMs: performance.now(), cpuMs: (user + system) / 1000 });
};
const [, , task, name = "", address = ""] = process.argv;
let end: () => Promise<void> | void = () => {};

count();
if (task === "import") {
  await modules[name]?.();
  count();
} else if (task === "open" && name === "net") {
  const { createServer } = await import("node:net");
  count();
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  end = () => void server.close();
  count();
} else if (task === "open") {
  const { Engine } = await import("cinnabar");
  count();
  const engine = await Engine.open({ listen: name });
  end = () => engine.close();
  count();
} else if (task === "serve") {
  const contender = await servers[name]?.(address);
  count();
  const serving = await contender?.serve?.();
  end = async () => serving?.close();
  count();
}
const [begun, imported = begun, opened = imported] = costs;
process.send?.({ begun, imported, opened, residentBytes: process.memoryUsage.rss() });
await end();
process.disconnect?.();
