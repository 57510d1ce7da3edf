import { spawn } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The root of the checkout; every command of these scripts runs there. */
export const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * A failure with a sentence for the person at the terminal: what failed and what to do. It is printed without a stack.
 */
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

/**
 * What has been started and goes on; true where it leads a process group of its own. @type
 * {Map<import("node:child_process").ChildProcess, boolean>}
 */
const running = new Map();

let isEnding = false;

/**
 * Ends with the children: a set-up stopped by Ctrl-C or a supervisor must not leave a compiler running.
 *
 * @param {{ graceMs?: number }} [options] how long children may take to end theirs; less than the parent's own grace
 * @returns {() => void} stops watching, for a program with signal handling of its own that comes after
 */
export function endChildrenOnSignal({ graceMs = 3_000 } = {}) {
  /** @param {NodeJS.Signals} signal */
  const end = (signal) => {
    if (isEnding) return;
    isEnding = true;
    const kill = killer(signal);
    const exit = () => {
      for (const [child, leadsGroup] of running) if (leadsGroup) killer("SIGKILL")(child, true);
      process.exit(signal === "SIGINT" ? 130 : 143);
    };
    for (const [child, leadsGroup] of running) {
      kill(child, leadsGroup);
      child.once("close", () => {
        running.delete(child);
        if (running.size === 0) exit();
      });
    }
    if (running.size === 0) exit();
    setTimeout(exit, graceMs);
  };
  process.on("SIGINT", end);
  process.on("SIGTERM", end);
  return () => {
    process.off("SIGINT", end);
    process.off("SIGTERM", end);
  };
}

/** @param {NodeJS.Signals} signal */
function killer(signal) {
  /** @param {import("node:child_process").ChildProcess} child @param {boolean} leadsGroup */
  return (child, leadsGroup) => {
    try {
      if (child.pid !== undefined) process.kill(leadsGroup ? -child.pid : child.pid, signal);
    } catch {
      // it has ended by itself
    }
  };
}

/**
 * Runs a command quietly and says on one line that it goes on. On failure the last lines of its output become part of
 * the error, because they are what a reader needs and the rest is noise.
 *
 * @param {string} title what is being done, in the words of the progress lines
 * @param {string} command
 * @param {readonly string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, advice?: string, excerpt?: (output: string) => string }} [options] `excerpt` takes
 * what matters from a failed command's output; by default that is its end
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
  running.set(child, false);
  child.stdout.on("data", (chunk) => (output += chunk));
  child.stderr.on("data", (chunk) => (output += chunk));
  const stillWorking = setInterval(() => {
    const line = lastLines(output, 1).trim().slice(0, 160);
    console.log(`[setup]   ${title}: ${seconds(started)} ${line}`);
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
 * Waits for all works, even after a failure, so that no work is left running. Then fails with the first error.
 *
 * @param {readonly Promise<unknown>[]} works
 */
export async function allOf(works) {
  for (const result of await Promise.allSettled(works)) {
    if (result.status === "rejected") throw result.reason;
  }
}

/** Between the request to end and the kill. */
const killGraceMs = 8_000;

/**
 * Runs a command with its output passed through; for test stages, whose output is the point.
 *
 * @param {string} command
 * @param {readonly string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, timeoutMs?: number, output?: number | ((chunk: Buffer) => void) }} [options] after
 * `timeoutMs` the command is ended with all that it has started; `output`: an open file for the command's output, or a
 * function that gets the output beside the terminal
 * @returns {Promise<string>} "0", another exit status, a signal's name, "a timeout", or why it could not start
 */
export async function live(command, args, { env = {}, timeoutMs, output = 1 } = {}) {
  const leadsGroup = timeoutMs !== undefined;
  const isTold = typeof output === "function";
  const child = spawn(command, args, {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: isTold ? ["ignore", "pipe", "inherit"] : ["ignore", output, output === 1 ? 2 : output],
    // A process group of its own, so that nothing it has started outlives the timeout.
    detached: leadsGroup,
  });
  running.set(child, leadsGroup);
  if (isTold) {
    child.stdout?.on("data", (chunk) => {
      process.stdout.write(chunk);
      output(chunk);
    });
  }
  let timedOut = false;
  /** @type {NodeJS.Timeout[]} */
  const timers = [];
  if (timeoutMs !== undefined) {
    const expire = () => {
      timedOut = true;
      killer("SIGTERM")(child, true);
      timers.push(setTimeout(() => killer("SIGKILL")(child, true), killGraceMs));
    };
    timers.push(setTimeout(expire, timeoutMs));
  }
  try {
    const ending = await ended(child);
    return timedOut ? "a timeout" : ending;
  } finally {
    for (const timer of timers) clearTimeout(timer);
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
 * @returns {Promise<string>} does not settle once this process ends, so that nothing follows
 */
function ended(child) {
  return new Promise((resolve) => {
    /** @param {string} ending */
    const settle = (ending) => {
      if (!isEnding) resolve(ending);
    };
    child.once("error", (error) => settle(error.message));
    child.once("close", (status, signal) => settle(signal ?? String(status)));
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
export function lastLines(text, count) {
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
