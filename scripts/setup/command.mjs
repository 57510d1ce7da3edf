import { spawn } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The root of the checkout; every command of these scripts runs there. */
export const root = fileURLToPath(new URL("../..", import.meta.url));

/** A failure with a sentence for the person at the terminal: what failed and what to do. It is printed without a stack. */
export class SetupError extends Error {
  /**
   * @param {string} message
   * @param {string} [advice]
   */
  constructor(message, advice) {
    super(message);
    this.name = "SetupError";
    this.advice = advice;
  }
}

/** @type {Set<import("node:child_process").ChildProcess>} */
const running = new Set();

/**
 * Ends with the children: a set-up stopped by Ctrl-C or a supervisor must not leave a compiler running.
 *
 * @returns {() => void} stops watching, for a program with signal handling of its own that comes after
 */
export function endChildrenOnSignal() {
  /** @param {NodeJS.Signals} signal */
  const end = (signal) => {
    for (const child of running) child.kill(signal);
    process.exit(signal === "SIGINT" ? 130 : 143);
  };
  process.on("SIGINT", end);
  process.on("SIGTERM", end);
  return () => {
    process.off("SIGINT", end);
    process.off("SIGTERM", end);
  };
}

/**
 * Runs a command quietly and says on one line that it goes on. On failure the last lines of its output become part of the error,
 * because they are what a reader needs and the rest is noise.
 *
 * @param {string} title what is being done, in the words of the progress lines
 * @param {string} command
 * @param {readonly string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, advice?: string, excerpt?: (output: string) => string }} [options] `excerpt` takes what matters
 * from a failed command's output; by default that is its end
 * @returns {Promise<string>} everything the command wrote
 */
export async function step(title, command, args, options = {}) {
  const started = performance.now();
  console.log(`[setup] ${title} …`);
  let output = "";
  const child = spawn(command, args, {
    cwd: root,
    env: { ...process.env, ...options.env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  child.stdout.on("data", (chunk) => (output += chunk));
  child.stderr.on("data", (chunk) => (output += chunk));
  const stillWorking = setInterval(() => {
    const line = lastLines(output, 1).trim().slice(0, 160);
    console.log(`[setup]   ${seconds(started)} ${line}`);
  }, 15_000);
  try {
    const ending = await ended(child);
    if (ending !== "0") {
      const { excerpt = (all) => lastLines(all, 30) } = options;
      const tail = excerpt(output);
      const what = `${title}: \`${[command, ...args].join(" ")}\` ended with ${ending}`;
      throw new SetupError(tail === "" ? what : `${what}. It said:\n${indent(tail)}`, options.advice);
    }
  } finally {
    clearInterval(stillWorking);
    running.delete(child);
  }
  console.log(`[setup] ${title}: done in ${seconds(started)}`);
  return output;
}

/**
 * Runs a command with its output passed through; for test stages, whose output is the point.
 *
 * @param {string} command
 * @param {readonly string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, timeoutMs?: number }} [options] after `timeoutMs` the command is killed with all that it has started
 * @returns {Promise<string>} "0", another exit status, a signal's name, "a timeout", or why it could not start
 */
export async function live(command, args, { env = {}, timeoutMs } = {}) {
  const child = spawn(command, args, {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: "inherit",
    // A process group of its own, so that nothing it has started outlives the timeout.
    detached: timeoutMs !== undefined,
  });
  running.add(child);
  let timedOut = false;
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          timedOut = true;
          if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
        }, timeoutMs);
  try {
    const ending = await ended(child);
    return timedOut ? "a timeout" : ending;
  } finally {
    clearTimeout(timer);
    running.delete(child);
  }
}

/**
 * Runs a command for its answer.
 *
 * @param {string} command
 * @param {readonly string[]} args
 * @param {string} [input]
 * @returns {Promise<{ ok: boolean, output: string }>}
 */
export async function ask(command, args, input = "") {
  const child = spawn(command, args, { cwd: root, stdio: ["pipe", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (chunk) => (output += chunk));
  child.stderr.on("data", (chunk) => (output += chunk));
  child.stdin.on("error", () => {}); // a command that does not read its input is no failure
  child.stdin.end(input);
  return { ok: (await ended(child)) === "0", output };
}

/**
 * Where a program is on PATH; undefined when it is not.
 *
 * @param {string} program
 * @returns {string | undefined}
 */
export function onPath(program) {
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    const candidate = join(folder, program);
    try {
      accessSync(candidate, constants.X_OK);
      if (statSync(candidate).isFile()) return candidate;
    } catch {
      // not in this folder
    }
  }
  return undefined;
}

/**
 * @param {import("node:child_process").ChildProcess} child
 * @returns {Promise<string>}
 */
function ended(child) {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("close", (status, signal) => resolve(signal ?? String(status)));
  });
}

/** @param {number} started */
function seconds(started) {
  return `${((performance.now() - started) / 1000).toFixed(1)} s`;
}

/**
 * @param {string} text
 * @param {number} count
 */
function lastLines(text, count) {
  return text
    .trimEnd()
    .split(/[\r\n]+/)
    .slice(-count)
    .join("\n");
}

/** @param {string} text */
function indent(text) {
  return text.replace(/^/gm, "    ");
}
