// Follows the guide's first service: starts its server, runs its client, and ends the server as Ctrl-C does. For an
// installed package, in the folder of the programs.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const words = process.argv.slice(2);
/** @param {string} program @param {"pipe" | "inherit"} stdout */
const start = (program, stdout) =>
  spawn(words[0] ?? "npx", [...words.slice(1), program], { stdio: ["ignore", stdout, "inherit"] });

const server = start("server.ts", "pipe");
const ended = once(server, "close");
let addresses = 0;
for await (const line of createInterface({ input: server.stdout ?? process.stdin })) {
  console.log(line);
  if (++addresses < 2) continue;
  const [status] = await once(start("client.ts", "inherit"), "close");
  console.log(`the client ended with ${status}`);
  process.kill(processOf("server.ts", server.pid ?? 0), "SIGTERM");
}
const [status, signal] = await ended;
console.log(`the server ended with ${status ?? signal}`);

/**
 * The process that runs a program, below the one of tsx. A signal to tsx would do on a quiet machine: tsx kills its child
 * when it has not heard within 30 ms that the child has the signal, too.
 *
 * @param {string} program
 * @param {number} pid
 * @returns {number}
 */
function processOf(program, pid) {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean);
  const child = children.find((it) => readFileSync(`/proc/${it}/cmdline`, "utf8").includes(program));
  return child === undefined ? pid : processOf(program, Number(child));
}
