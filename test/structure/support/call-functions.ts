import { type ChildProcess, fork } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { SourceMap } from "node:module";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const program = join(root, "test/structure/programs/echo.ts");

/** Calls that run before those that count: tables are filled then, and code for the shape of the item is generated. */
const warmUpCalls = 2_000;
const countedCalls = 1_000;
/** How often a function of the bundle was entered, and where it begins in the bundle. */
export interface Entered {
  readonly name: string;
  readonly offset: number;
  readonly times: number;
}

export type Order = { readonly kind: "call"; readonly calls: number } | { readonly kind: "count" | "take" };

export type Said =
  | { readonly kind: "listening"; readonly url: string }
  | { readonly kind: "connected" | "called" | "counting" }
  | { readonly kind: "counted"; readonly functions: readonly Entered[] };

/** A function that runs for a call: how often for each, in which file of `src/` it stands. */
export interface CallFunction {
  readonly name: string;
  readonly file: string;
  readonly perCall: number;
}

export interface Sides {
  readonly client: readonly CallFunction[];
  readonly server: readonly CallFunction[];
}

/** Bundles the program with the sources of the library. The caller removes the folder. */
export async function bundleEcho(): Promise<{ readonly folder: string; readonly file: string }> {
  // As deep as src/fabric/libfabric/, whose code finds native/ from its own place.
  const parent = join(root, "build/call-functions");
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(join(parent, "echo-"));
  const bundle = await rolldown({
    cwd: root,
    input: program,
    platform: "node",
    tsconfig: false,
    transform: { target: "es2022" },
    resolve: { alias: { cinnabar: join(root, "src/index.ts") } },
    external: /^(?!cinnabar$)[^./]/,
  });
  await bundle.write({
    dir: folder,
    format: "esm",
    entryFileNames: "echo.js",
    codeSplitting: false,
    sourcemap: true,
  });
  await bundle.close();
  return { folder, file: join(folder, "echo.js") };
}

export function removeBundle(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
}

/** The functions that one call runs on both sides, with client and server in two processes. */
export async function functionsOfCall(bundle: string, url: string): Promise<Sides> {
  const server = new Side(bundle, ["listen", url]);
  try {
    const { url: address } = await server.hear("listening");
    const client = new Side(bundle, [address]);
    try {
      await client.hear("connected");
      await client.ask({ kind: "call", calls: warmUpCalls }, "called");
      await Promise.all([client, server].map((side) => side.ask({ kind: "count" }, "counting")));
      await client.ask({ kind: "call", calls: countedCalls }, "called");
      const take = async (side: Side) =>
        rowsOf(bundle, (await side.ask({ kind: "take" }, "counted")).functions);
      return { client: await take(client), server: await take(server) };
    } finally {
      await client.end();
    }
  } finally {
    await server.end();
  }
}

/**
 * How many functions one call runs. A call that waits takes this way or that, as the processor is busy or not: a function
 * of every third call counts as a third.
 */
export function count(functions: readonly CallFunction[]): number {
  return functions.reduce((sum, { perCall }) => sum + Math.min(1, perCall), 0);
}

/** The same for each room: a folder of `src/`, of two names at most. */
export function countByRoom(functions: readonly CallFunction[]): Record<string, number> {
  const roomOf = ({ file }: CallFunction): string => dirname(file).split("/").slice(1, 3).join("/");
  const rooms = [...new Set(functions.map(roomOf))].sort();
  return Object.fromEntries(
    rooms.map((room) => [room, Math.round(count(functions.filter((each) => roomOf(each) === room)))]),
  );
}

/** The functions of `src/` that run for a call, by the source map of the bundle. */
function rowsOf(bundle: string, entered: readonly Entered[]): readonly CallFunction[] {
  const lines = readFileSync(bundle, "utf8").split("\n");
  const map = new SourceMap(JSON.parse(readFileSync(`${bundle}.map`, "utf8")));
  const begins: number[] = [];
  let length = 0;
  for (const line of lines) {
    begins.push(length);
    length += line.length + 1;
  }
  const fileAt = (offset: number): string => {
    const line = begins.findLastIndex((begin) => begin <= offset);
    const entry = map.findEntry(line, offset - (begins[line] ?? 0));
    return "originalSource" in entry ? relative(root, resolve(dirname(bundle), entry.originalSource)) : "";
  };
  return entered
    .filter(({ times }) => times > 0)
    .map(({ name, offset, times }) => ({ name, file: fileAt(offset), perCall: times / countedCalls }))
    .filter(({ file }) => file.startsWith("src/"))
    .sort((a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : b.perCall - a.perCall));
}

/** A process with one side of the calls. It fails with its stderr when it ends unasked. */
class Side {
  readonly #process: ChildProcess;
  readonly #ended: Promise<void>;
  #stderr = "";

  constructor(bundle: string, args: readonly string[]) {
    this.#process = fork(bundle, args, {
      stdio: ["ignore", "ignore", "pipe", "ipc"],
      execArgv: [],
      env: { ...process.env, NODE_OPTIONS: "", VITEST: "" },
    });
    this.#process.stderr?.on("data", (chunk) => {
      this.#stderr += chunk;
    });
    this.#ended = new Promise((resolve) => this.#process.once("exit", () => resolve()));
  }

  ask<Kind extends Said["kind"]>(order: Order, kind: Kind): Promise<Extract<Said, { kind: Kind }>> {
    const heard = this.hear(kind);
    this.#process.send(order);
    return heard;
  }

  hear<Kind extends Said["kind"]>(kind: Kind): Promise<Extract<Said, { kind: Kind }>> {
    return new Promise((resolve, reject) => {
      const onMessage = (said: Said) => {
        if (said.kind !== kind) return;
        this.#process.off("message", onMessage);
        resolve(said as Extract<Said, { kind: Kind }>);
      };
      this.#process.on("message", onMessage);
      void this.#ended.then(() =>
        reject(new Error(`the program ended before it said ${kind}: ${this.#stderr}`)),
      );
    });
  }

  async end(): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#ended;
  }
}
