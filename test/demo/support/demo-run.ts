import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const program = fileURLToPath(new URL("../../../build/examples/demo/main.js", import.meta.url));

/** The built demo as a child process, with all it writes, and the two processes it starts. */
export class DemoRun {
  output = "";
  errors = "";
  /** Resolves when the demo and all that shares its output has ended. */
  readonly ended: Promise<number | NodeJS.Signals>;
  readonly #child: ChildProcess;
  readonly #watchers = new Set<() => void>();

  constructor(...args: readonly string[]) {
    if (!existsSync(program)) throw new Error("The demo is not built: `npm run setup` builds it");
    this.#child = spawn(process.execPath, [program, ...args], { stdio: ["ignore", "pipe", "pipe"] });
    this.#child.stdout?.on("data", (chunk) => {
      this.output += chunk;
      for (const watch of this.#watchers) watch();
    });
    this.#child.stderr?.on("data", (chunk) => {
      this.errors += chunk;
    });
    this.ended = new Promise((resolve, reject) => {
      this.#child.once("error", reject);
      this.#child.once("close", (status, signal) => resolve(signal ?? status ?? -1));
    });
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Resolves once the output contains the text; rejects when the demo ends without it. */
  async says(text: string): Promise<void> {
    const heard = new Promise<void>((resolve) => {
      const watch = () => {
        if (!this.output.includes(text)) return;
        this.#watchers.delete(watch);
        resolve();
      };
      this.#watchers.add(watch);
      watch();
    });
    const silence = this.ended.then((ending) => {
      if (!this.output.includes(text)) {
        throw new Error(
          `the demo ended with ${ending} and never said "${text}":\n${this.output}\n${this.errors}`,
        );
      }
    });
    await Promise.race([heard, silence]);
  }

  /** The process ids of the server and the client. Only after "server is process". */
  get processes(): { readonly server: number; readonly client: number } {
    const match = /server is process (\d+), client is process (\d+)/.exec(this.output);
    if (match === null) throw new Error("the demo has not said which its processes are");
    return { server: Number(match[1]), client: Number(match[2]) };
  }

  /** The shared-memory files that its processes have left behind. */
  leftovers(): string[] {
    if (!existsSync("/dev/shm")) return [];
    const { server, client } = this.processes;
    return readdirSync("/dev/shm").filter((name) =>
      new RegExp(`(^|\\D)(${server}|${client})(\\D|$)`).test(name),
    );
  }
}

/** Whether a process runs; one that has ended and that nobody has waited for does not. */
export function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}
