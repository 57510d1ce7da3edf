import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The command line as users get it. */
export const program = fileURLToPath(new URL("../../../dist/cli/bin/cinnabar.js", import.meta.url));

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  /** What standard input has. Default: nothing. */
  readonly input?: string;
  readonly cwd?: string;
  /** Another copy of the command line. */
  readonly program?: string;
}

/** A command that runs. */
export interface Running {
  readonly child: ChildProcessWithoutNullStreams;
  /** Resolves when standard output has had this many lines, with all of them. */
  lines(count: number): Promise<string[]>;
  readonly ended: Promise<Ended>;
}

/** Starts `cinnabar ARGUMENTS` as a process, without a terminal. The test's own event loop goes on, and may serve it. */
export function start(args: readonly string[], { cwd, program: copy = program }: RunOptions = {}): Running {
  if (!existsSync(copy)) throw new Error("the command line is not built: `npm run setup` builds it");
  const child = spawn(process.execPath, [copy, ...args], {
    cwd,
    env: { ...process.env, NODE_OPTIONS: "" },
  });
  let stdout = "";
  let stderr = "";
  const waiting = new Set<() => void>();
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
    for (const look of waiting) look();
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => resolve({ status, stdout, stderr }));
  });
  const lines = (count: number) =>
    new Promise<string[]>((resolve, reject) => {
      const look = () => {
        const whole = stdout.split("\n").slice(0, -1);
        if (whole.length < count) return;
        waiting.delete(look);
        resolve(whole);
      };
      waiting.add(look);
      ended.then(({ status }) => reject(new Error(`it ended with ${status}: ${stdout}${stderr}`)));
      look();
    });
  return { child, lines, ended };
}

/** Runs `cinnabar ARGUMENTS` to its end. */
export function cinnabar(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
  const { child, ended } = start(args, options);
  // A command may end before it has read its input.
  child.stdin.on("error", () => {});
  child.stdin.end(options.input ?? "");
  return ended;
}
