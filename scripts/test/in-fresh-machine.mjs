// in-fresh-machine.mjs CASE ROOT: a hook of mmdebstrap, which runs it in its own namespaces. Tries a clone of the
// checkout in a bare root of Debian by the README's commands alone. Prints a line `ok` or `FAILED` for each check.
// `FRESH_MACHINE` names folders of this machine: see fresh-machines.mjs.
import { appendFileSync, cpSync, existsSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { ask, lastLines } from "../setup/command.mjs";

const [who = "", root = ""] = process.argv.slice(2);
/** @type {import("./fresh-machines.mjs").Folders} */
const { checkout, node, npm, report } = JSON.parse(process.env.FRESH_MACHINE ?? "");
const home = who === "user" ? "/home/user" : "/root";
const clone = join(home, "cinnabar");
/** The first sets up what tests need besides, so that the second needs no network. */
const smokeOfTests = [
  { command: "npm test -- native", offline: false },
  { command: "npm test -- vitest test/unary/ test/bulk/ test/streams/", offline: true },
];
const certificates = "/etc/ssl/certs/ca-certificates.crt";

let failed = false;
try {
  await prepare();
  if (who === "user") await tryAsUser();
  else await tryAsRoot();
} catch (error) {
  failed = true;
  say(`FAILED  ${error instanceof Error ? error.message : error}`);
}
process.exitCode = failed ? 1 : 0;

async function tryAsUser() {
  const told = await enter("npm run demo");
  const command = told.output.match(/^ *sudo sh -c '(.*)'$/m)?.[1];
  note("a user without sudo is told what to install", !told.ok && command !== undefined, told.output);
  note("nothing was done before", !existsSync(join(root, clone, "node_modules")), told.output);
  const installed = await enter(String(command), { asRoot: true });
  note("what it names is installed as it says", installed.ok, installed.output);
  await demo("then npm run demo works");
}

async function tryAsRoot() {
  const output = await demo("npm run demo installs what it needs, and works");
  note(
    "it says before what it installs",
    /^\[setup\] {3}Debian packages, as root: g\+\+ /m.test(output),
    output,
  );
  const again = await demo("it works without network once set up", { offline: true });
  note("it does nothing twice", !again.includes("[setup]"), again);
  for (const { command, offline } of smokeOfTests) {
    const { ok, output: said } = await enter(command, { offline });
    note(
      `${command} passes${offline ? " without network" : ""}`,
      ok && /^[1-9]\d* passed, 0 failed$/.test(lastLines(said, 1)),
      said,
    );
    if (!offline)
      note(
        "npm test says before what it installs",
        /^\[setup\] To be installed:\n(?:\[setup\] {3}.*\n)*\[setup\] {3}programs of tests.*: etcd/m.test(
          said,
        ),
        said,
      );
  }
}

/** @param {string} what @param {{ offline?: boolean }} [options] */
async function demo(what, options) {
  const { ok, output } = await enter("npm run demo", options);
  note(
    what,
    ok && ["shm", "tcp"].every((fabric) => new RegExp(`^${fabric} .* all$`, "m").test(output)),
    output,
  );
  return output;
}

/** Node, npm, the clone and the network of this machine. */
async function prepare() {
  // mmdebstrap mounts it read-only, and tests write to the memory of processes there.
  mustSucceed(await ask("mount", ["-o", "remount,rw", join(root, "proc")]));
  mkdirSync(join(root, "opt/node/bin"), { recursive: true });
  cpSync(join(node, "bin/node"), join(root, "opt/node/bin/node"));
  cpSync(npm, join(root, "opt/npm"), { recursive: true });
  for (const name of ["npm", "npx"])
    symlinkSync(`/opt/npm/bin/${name}-cli.js`, join(root, "opt/node/bin", name));
  for (const file of ["/etc/resolv.conf", "/etc/hosts"])
    cpSync(file, join(root, file), { dereference: true });
  if (existsSync(certificates))
    cpSync(certificates, join(root, "opt/certificates.pem"), { dereference: true });
  mustSucceed(await ask("chroot", [root, "useradd", "--create-home", "user"]));
  mustSucceed(await ask("git", ["clone", "--quiet", `file://${checkout}`, join(root, clone)]));
  if (who === "user") mustSucceed(await ask("chroot", [root, "chown", "-R", "user:user", clone]));
}

/**
 * Runs a line of shell in the clone.
 *
 * @param {string} line
 * @param {{ asRoot?: boolean, offline?: boolean }} [options] `offline`: with loopback alone
 */
function enter(line, { asRoot = who === "root", offline = false } = {}) {
  const words = [
    ...(offline ? ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"] : []),
    ...["chroot", root, "env", "-i", `HOME=${asRoot ? "/root" : home}`, "npm_config_update_notifier=false"],
    ...["PATH=/opt/node/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NODE_EXTRA_CA_CERTS=/opt/certificates.pem"],
    ...(asRoot ? [] : ["setpriv", "--reuid", "user", "--regid", "user", "--init-groups"]),
    ...["sh", "-c", `cd ${clone} && ${line}`],
  ];
  const [command, ...args] = words;
  return ask(String(command), args);
}

/** @param {{ ok: boolean, output: string }} ending */
function mustSucceed({ ok, output }) {
  if (!ok) throw new Error(output);
}

/** @param {string} what @param {boolean} isSo @param {string} output */
function note(what, isSo, output) {
  if (!isSo) throw new Error(`${what}\n${lastLines(output, 60)}`);
  say(`ok      ${what}`);
}

/** @param {string} line */
function say(line) {
  console.log(line);
  appendFileSync(report, `${line}\n`);
}
