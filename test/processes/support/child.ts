import { type ChildProcess, fork } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Answer, Report } from "../programs/commands.ts";

/** The programs as `bundle-programs.ts` leaves them, and those of packages that it does not bundle. */
const folders = ["programs/", "packages/group/test/programs/", "packages/nvme/test/programs/"].map((folder) =>
  fileURLToPath(new URL(`../../../build/${folder}`, import.meta.url)),
);

/** How a process ended: the signal if one ended it, else its exit status. */
export type Ending = number | NodeJS.Signals;

export interface ChildOptions {
  readonly env?: NodeJS.ProcessEnv;
  readonly nodeOptions?: readonly string[];
  /** A program and its arguments that starts node: `["unshare", "-U"]`. */
  readonly launcher?: readonly [string, ...string[]];
}

/** A report is told from an answer by the number that only an answer has. */
type Message = Report | Answer;

interface Waiter {
  readonly what: string;
  readonly matches: (report: Report) => boolean;
  readonly resolve: (report: Report) => void;
  readonly reject: (error: Error) => void;
}

const living = new Set<Child>();
/** The processes that may have left files of libfabric's shared memory. */
const owners = new Set<number>();

/**
 * A program of `programs/`, running. What it reports arrives as events, what it is asked it answers, and everything
 * that waits for it fails with its stderr when it ends without a word. `endAllChildren` in an afterEach leaves none
 * behind, whatever the test did.
 */
export class Child {
  stdout = "";
  stderr = "";
  /** Settles when the process has ended and its output has been read. */
  readonly ended: Promise<Ending>;
  readonly #name: string;
  readonly #process: ChildProcess;
  readonly #unread: Report[] = [];
  readonly #waiters = new Set<Waiter>();
  readonly #asked = new Map<number, (answer: Answer) => void>();
  #asks = 0;

  constructor(
    name: string,
    settings: object = {},
    { env = {}, nodeOptions = [], launcher }: ChildOptions = {},
  ) {
    const program = folders.map((folder) => `${folder}${name}.js`).find(existsSync);
    if (program === undefined) throw new Error(`${name} is not built: \`npm run setup\` builds it`);
    this.#name = name;
    this.#process = fork(program, [JSON.stringify(settings)], {
      stdio: ["ignore", "pipe", "pipe", "ipc"],
      serialization: "advanced",
      ...(launcher && { execPath: launcher[0] }),
      // Not vitest's own: a child is a program like any other.
      execArgv: [...(launcher === undefined ? [] : [...launcher.slice(1), process.execPath]), ...nodeOptions],
      env: { ...process.env, NODE_OPTIONS: "", VITEST: "", ...env },
    });
    living.add(this);
    owners.add(this.pid);
    this.#process.stdout?.on("data", (chunk) => {
      this.stdout += chunk;
    });
    this.#process.stderr?.on("data", (chunk) => {
      this.stderr += chunk;
    });
    this.#process.on("message", (message) => this.#onMessage(message as Report | Answer));
    this.ended = new Promise((resolve, reject) => {
      this.#process.once("error", reject);
      this.#process.once("close", (status, signal) => resolve(signal ?? status ?? -1));
    });
    const onEnded = (ending: Ending) => {
      living.delete(this);
      this.#failWaiters(ending);
    };
    this.ended.then(onEnded, () => onEnded(-1));
  }

  get pid(): number {
    return this.#process.pid as number;
  }

  /** The next report of that kind, past or to come. */
  report(kind: string, matches: (report: Report) => boolean = () => true): Promise<Report> {
    const fits = (report: Report) => report.report === kind && matches(report);
    const index = this.#unread.findIndex(fits);
    if (index >= 0) return Promise.resolve(this.#unread.splice(index, 1)[0] as Report);
    return this.#wait(kind, fits).promise;
  }

  /** All reports of that kind that nobody has taken. */
  unread(kind: string): Report[] {
    return this.#unread.filter((report) => report.report === kind);
  }

  /** What the program answers to a command; rejects with what it throws. */
  async ask<T = unknown>(command: string, input?: unknown): Promise<T> {
    const id = ++this.#asks;
    const answered = new Promise<Answer>((resolve) => this.#asked.set(id, resolve));
    this.#process.send({ id, command, input });
    const { promise: silent, cancel } = this.#wait(`an answer to ${command}`, () => false);
    const answer = await Promise.race([answered, silent as Promise<never>]).finally(cancel);
    if (answer.error !== undefined) throw answer.error;
    return answer.value as T;
  }

  kill(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /** Stops the process; resolves when it stands still. */
  async stop(): Promise<void> {
    this.kill("SIGSTOP");
    while (stateOf(this.pid) !== "T") await new Promise(setImmediate);
  }

  /** Kills the process and waits for its end. */
  async destroy(): Promise<void> {
    // SIGKILL ends a stopped process too.
    this.kill("SIGKILL");
    await this.ended.catch(() => undefined);
  }

  #wait(what: string, matches: Waiter["matches"]) {
    let waiter!: Waiter;
    const promise = new Promise<Report>((resolve, reject) => {
      waiter = { what, matches, resolve, reject };
    });
    // The test may have failed already and look at nothing any more.
    promise.catch(() => undefined);
    this.#waiters.add(waiter);
    if (!living.has(this)) this.#failWaiters("before");
    return { promise, cancel: () => void this.#waiters.delete(waiter) };
  }

  #onMessage(message: Message): void {
    if (isAnswer(message)) {
      this.#asked.get(message.id)?.(message);
      this.#asked.delete(message.id);
      return;
    }
    for (const waiter of this.#waiters) {
      if (!waiter.matches(message)) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(message);
      return;
    }
    this.#unread.push(message);
  }

  #failWaiters(ending: Ending | "before"): void {
    for (const { what, reject } of this.#waiters) {
      // A summary of a run shows the first line alone.
      const [reason = "it printed no error"] = /^\w*Error\b.*$/m.exec(this.stderr) ?? [];
      reject(new Error(`${this.#name} ended (${ending}) without ${what}: ${reason}\n${this.stderr}`));
    }
    this.#waiters.clear();
  }
}

function isAnswer(message: Message): message is Answer {
  return "id" in message;
}

/**
 * For afterEach: ends what still runs, each by its own process id. libfabric leaves the files of processes that were
 * killed, and a later process may have such an id.
 */
export async function endAllChildren(): Promise<void> {
  await Promise.all([...living].map((child) => child.destroy()));
  for (const file of sharedFiles(...owners)) rmSync(`/dev/shm/${file}`, { force: true });
  owners.clear();
}

/** The letter of proc(5): R, S, D, T, Z …; "" when there is no such process. */
export function stateOf(pid: number): string {
  try {
    // The name in parentheses may hold anything.
    return readFileSync(`/proc/${pid}/stat`, "latin1").replace(/^.*\) /s, "")[0] ?? "";
  } catch {
    return "";
  }
}

/** The shared-memory files that carry one of these names or process ids. A Unix socket's URL has no name. */
export function sharedFiles(...owners: readonly (string | number)[]): string[] {
  const names = owners.filter((owner) => owner !== "");
  if (!existsSync("/dev/shm") || names.length === 0) return [];
  const pattern = new RegExp(`(^|[^A-Za-z0-9])p?(${names.join("|").replaceAll(".", "\\.")})([^A-Za-z0-9]|$)`);
  return readdirSync("/dev/shm").filter((name) => pattern.test(name));
}
