import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { neededBy } from "../package/other-packages.mjs";

/**
 * What runs in one root with one Node. `command` is a shell's; its output must match each of `says`.
 *
 * @typedef {object} Case
 * @property {string} what
 * @property {string} command
 * @property {readonly RegExp[]} says
 * @property {RegExp} [never] what it must not say
 * @property {number} [maxSeconds]
 * @property {boolean} [ownNetwork] whether it takes ports that other programs may have
 */

/**
 * A package beside `cinnabar`.
 *
 * @typedef {object} Other
 * @property {string} file its archive in the user's folder
 * @property {string} name of the package, and of the program that uses it
 */

const answers = (/** @type {string} */ scheme) => [
  new RegExp(`^${scheme}: Hello, ${scheme}$`, "m"),
  new RegExp(`^${scheme}: 16777216 bytes there and back$`, "m"),
];

/** Of npm. */
const complaints = /\b(?:warn|deprecated|invalid|missing|extraneous)\b|ERR!/i;

/**
 * @param {number} major of Node
 * @param {string} archive the package's file in the user's folder
 * @param {readonly Other[]} others
 * @param {string} printed what the programs of the guide print
 * @returns {readonly Case[]}
 */
export function casesOf(major, archive, others, printed) {
  const model = major >= 22 ? "--permission" : "--experimental-permission";
  const network = major >= 25 ? "--allow-net" : "";
  const filesOf = (/** @type {string} */ name) =>
    neededBy(name).map(({ manifest }) => `../${others.find((other) => other.name === manifest.name)?.file}`);
  const permission = `node ${model} --allow-fs-read='*' --allow-fs-write='*' ${network}`;
  return [
    {
      what: "from a new folder to the first answers over mem, tcp and shm",
      command:
        "npm init -y >/dev/null && npm install --offline --no-audit --no-fund ./" +
        `${archive} zod && npm ls --all && node first-answers.mjs mem://a tcp://127.0.0.1:0 shm://first-${major}`,
      says: [/added \d+ packages/, ...answers("mem"), ...answers("tcp"), ...answers("shm")],
      never: complaints,
      maxSeconds: 60,
    },
    {
      what: "the command cinnabar, the bundled addon and the bundled libfabric",
      command:
        "npx --no-install cinnabar info --require tcp --require shm && test ! -e node_modules/cinnabar/native/build",
      says: [
        /^addon \/.*\/native\/linux-x64-glibc\/cinnabar\.node \(bundled with the package\)$/m,
        /^libfabric 2\.1, \/.*\/native\/linux-x64-glibc\/libfabric\.so\.1 \(bundled with the package\)$/m,
        /^shm:\/\/ +shm +yes$/m,
      ],
    },
    {
      what: "two processes over tcp and shm",
      command: `node pair.mjs tcp://127.0.0.1:0 shm://pair-${major}`,
      says: [
        /^tcp:.*: Hello, process \d+, from process \d+$/m,
        /^shm:.*: Hello, process \d+, from process \d+$/m,
      ],
    },
    {
      what: "Node's permission model with --allow-addons",
      command: `${permission} --allow-addons first-answers.mjs tcp://127.0.0.1:0 shm://permitted-${major}`,
      says: [...answers("tcp"), ...answers("shm")],
    },
    {
      what: "Node's permission model without --allow-addons says what is missing",
      command: `! ${permission} first-answers.mjs tcp://127.0.0.1:0 2>&1`,
      says: [/start the process with --allow-addons/],
    },
    {
      what: "a system without libfabric, where the system's is preferred, takes the bundled one",
      command: "CINNABAR_LIBFABRIC=system npx --no-install cinnabar info --json",
      says: [/"path": "libfabric\.so\.1",\s*"reason": "[^"]+No such file/, /"loaded": true/],
    },
    ...others.map(({ file, name }) => ({
      what: `a new project with ${name}: npm calls its tree whole, and a program uses it`,
      command:
        `mkdir ${name} && cd ${name} && npm init -y >/dev/null && ` +
        `npm install --offline --no-audit --no-fund ../${archive} ${filesOf(name).join(" ")} ../${file} && ` +
        "npm ls --all && " +
        `cp ../${name}.mjs . && node ${name}.mjs`,
      says: [/added \d+ packages/, new RegExp(`^${name} works$`, "m")],
      never: complaints,
    })),
    {
      what: "the guide's first service, command by command",
      command:
        `cd guide && cp ../${archive} . && npm_config_offline=true sh commands.sh && npx tsc --noEmit && ` +
        "node ../guide.mjs node_modules/.bin/tsx",
      says: [
        new RegExp(`^${printed.replaceAll(/[.*+?^$()|[\]{}\\]/g, "\\$&")}`, "m"),
        /^the client ended with 0\nthe server ended with 0$/m,
      ],
      ownNetwork: true,
    },
  ];
}

/** Counts checks, and prints each as it ends. */
export class Checks {
  passed = 0;
  /** @type {string[]} */
  problems = [];

  get failed() {
    return this.problems.length;
  }

  /** @param {string} name @param {string} fault "" if it has passed @param {number} [seconds] that it took */
  note(name, fault, seconds) {
    const time = seconds === undefined ? "" : ` (${seconds.toFixed(1)} s)`;
    console.log(`${fault === "" ? "ok     " : "FAILED "} ${name}${time}`);
    if (fault === "") this.passed += 1;
    else this.problems.push(`${name}: ${fault}`);
  }

  /**
   * @param {string} name
   * @param {Case} it
   * @param {readonly string[]} prefix the words that enter the root
   */
  async run(name, it, prefix) {
    const { fault, seconds } = await runCase(it, prefix);
    this.note(name, fault, seconds);
  }
}

/**
 * Runs a case and says why it has failed; "" if it has not.
 *
 * @param {Case} it
 * @param {readonly string[]} prefix the words that enter the root
 * @returns {Promise<{ fault: string, seconds: number }>}
 */
async function runCase({ command, says, never, maxSeconds }, prefix) {
  const started = performance.now();
  const { status, output } = await run([...prefix, "sh", "-c", command]);
  const seconds = (performance.now() - started) / 1000;
  const missing = says.filter((expression) => !expression.test(output));
  let fault = "";
  if (status !== 0) fault = `ended with ${status}`;
  else if (missing.length > 0) fault = `has not said ${missing.join(", ")}`;
  else if (never?.test(output)) fault = `has said ${never}`;
  else if (maxSeconds !== undefined && seconds > maxSeconds)
    fault = `took ${seconds.toFixed(1)} s, more than ${maxSeconds} s`;
  return { fault: fault === "" ? "" : `${fault}:\n${output}`, seconds };
}

/**
 * A server in one process namespace and its client in another, which share /dev/shm and the network.
 *
 * @param {(part: "server" | "client") => readonly string[]} prefix the words that enter a root
 * @param {readonly string[]} addresses
 * @returns {Promise<string>} why it has failed; "" if it has not
 */
export async function acrossNamespaces(prefix, addresses) {
  const [program = "", ...args] = [...prefix("server"), "node", "server.mjs", ...addresses];
  const server = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
  try {
    const lines = createInterface({ input: server.stdout });
    const first = await Promise.race([once(lines, "line"), once(server, "close").then(() => [])]);
    if (first.length === 0) return "the server has ended";
    const urls = JSON.parse(String(first[0]));
    const { status, output } = await run([...prefix("client"), "node", "client.mjs", ...urls]);
    const isWhole = addresses.every((_, at) => output.includes(`${urls[at]}: Hello,`));
    return status === 0 && isWhole ? "" : `the client ended with ${status}:\n${output}`;
  } finally {
    server.stdin.end();
    if (server.exitCode === null) await once(server, "close");
  }
}

/**
 * @param {readonly string[]} words
 * @returns {Promise<{ status: number | string, output: string }>}
 */
export async function run([program = "", ...args]) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], timeout: 300_000 });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
  const [status, signal] = await once(child, "close");
  return { status: status ?? signal, output };
}
