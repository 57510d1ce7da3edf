import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { run } from "../../src/run.ts";

const root = fileURLToPath(new URL("../../../../", import.meta.url));

/** The command line as users get it. */
export const program = `${root}dist/cli/bin/cinnabar.js`;

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  /** What standard input has. Default: nothing. */
  readonly input?: string;
  readonly cwd?: string;
  /** Variables beside those of this process. */
  readonly env?: NodeJS.ProcessEnv;
  /** Another copy of the command line. */
  readonly program?: string;
}

/** A program that runs. */
export interface Running {
  readonly child: ChildProcessWithoutNullStreams;
  /** Resolves when standard output has had this many lines, with all of them. */
  lines(count: number): Promise<string[]>;
  /** Resolves when what was printed from now on, or before, has this. */
  has(pattern: RegExp, where?: "stdout" | "stderr"): Promise<void>;
  /** Forgets what was printed. */
  forget(): void;
  readonly ended: Promise<Ended>;
}

/** Starts `cinnabar ARGUMENTS` as a process, without a terminal. The test's own event loop goes on, and may serve it. */
export function start(args: readonly string[], options: RunOptions = {}): Running {
  const { program: copy = program } = options;
  if (!existsSync(copy)) throw new Error("the command line is not built: `npm run setup` builds it");
  return startProgram([copy, ...args], options);
}

/** Starts `node ARGUMENTS`, by default in the folder of the package. */
export function startProgram(args: readonly string[], { cwd = root, env = {} }: RunOptions = {}): Running {
  const child = spawn(process.execPath, args, { cwd, env: { ...process.env, NODE_OPTIONS: "", ...env } });
  const said = { stdout: "", stderr: "" };
  const waiting = new Set<() => void>();
  for (const where of ["stdout", "stderr"] as const)
    child[where].setEncoding("utf8").on("data", (text: string) => {
      said[where] += text;
      for (const look of waiting) look();
    });
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => resolve({ status, ...said }));
  });
  const until = <T>(found: () => T | undefined) =>
    new Promise<T>((resolve, reject) => {
      const look = () => {
        const value = found();
        if (value === undefined) return;
        waiting.delete(look);
        resolve(value);
      };
      waiting.add(look);
      ended.then(({ status }) => reject(new Error(`it ended with ${status}: ${said.stdout}${said.stderr}`)));
      look();
    });
  return {
    child,
    lines: (count) =>
      until(() => {
        const whole = said.stdout.split("\n").slice(0, -1);
        return whole.length < count ? undefined : whole;
      }),
    has: async (pattern, where = "stdout") => {
      await until(() => (pattern.test(said[where]) ? true : undefined));
    },
    forget() {
      said.stdout = "";
      said.stderr = "";
    },
    ended,
  };
}

/** Runs `cinnabar ARGUMENTS` to its end. */
export function cinnabar(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
  const { child, ended } = start(args, options);
  // A command may end before it has read its input.
  child.stdin.on("error", () => {});
  child.stdin.end(options.input ?? "");
  return ended;
}

/** Runs `cinnabar ARGUMENTS` to its end in this process, which costs no process of its own. */
export async function inProcess(args: readonly string[]): Promise<Ended> {
  const said = { stdout: "", stderr: "" };
  const status = await run(args, {
    columns: Number.POSITIVE_INFINITY,
    print: (text) => {
      said.stdout += `${text}\n`;
    },
    complain: (text) => {
      said.stderr += `${text}\n`;
    },
    paint: (_, text) => text,
  });
  return { status, ...said };
}
