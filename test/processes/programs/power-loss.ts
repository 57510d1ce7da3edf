// A server in a network of its own, and a host beside it with another network, which may lose its power. A host that
// starts again has the former one's address. Runs under `unshare -rn`.
import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { readlinkSync } from "node:fs";
import { Engine, implement, service, unary } from "cinnabar/standard";
import { obey, settings, tell } from "./commands.ts";

const Calls = service("calls.v1", { make: unary() });
/** No heartbeat and no bound of idle connections may find the loss: the kernel's keepalive is what is tried. */
const longMs = 300_000;
const serverIp = "10.98.0.1";
const hostIp = "10.98.0.2";
const hostPort = 7401;
const { client } = settings<{ readonly client?: string }>();

const ip = (...args: string[]) => execFileSync("ip", args);

if (client !== undefined) {
  // It ends with the server's process, whose output it shares.
  process.on("disconnect", () => process.exit(0));
  // The network comes from outside.
  await once(process, "message");
  const engine = await Engine.open({ listen: `tcp://${hostIp}:${hostPort}`, heartbeatMs: longMs });
  const peer = await engine.connect(client, { timeoutMs: 60_000 });
  await peer.client(Calls, { timeoutMs: 60_000 }).make();
  process.send?.("called");
} else {
  ip("link", "set", "lo", "up");
  const server = await serverBeside();
  obey({
    start,
    losePower,
    counters: () => server.stats().counters,
  });
  tell("listening");
}

async function serverBeside(): Promise<Engine> {
  // It listens before any host is there.
  ip("address", "add", `${serverIp}/32`, "dev", "lo");
  const calls = implement(Calls, { make() {} });
  return await Engine.open({
    listen: `tcp://${serverIp}:7400`,
    heartbeatMs: longMs,
    serve: [calls],
  });
}

let host: ReturnType<typeof fork> | undefined;

/** Starts the host, which connects and calls. */
async function start(): Promise<void> {
  const settings = JSON.stringify({ client: `tcp://${serverIp}:7400` });
  const started = fork(process.argv[1] as string, [settings], {
    execPath: "unshare",
    execArgv: ["-n", process.execPath],
  });
  host = started;
  const inside = (...args: string[]) =>
    execFileSync("nsenter", ["-t", String(started.pid), "-n", "ip", ...args]);
  await once(started, "spawn");
  // The process has its network once its link differs from this one's.
  while (networkOf(started.pid as number) === networkOf("self")) await new Promise(setImmediate);
  ip("link", "add", "cable", "type", "veth", "peer", "name", "eth0", "netns", String(started.pid));
  inside("link", "set", "lo", "up");
  inside("link", "set", "eth0", "up");
  inside("address", "add", `${hostIp}/24`, "dev", "eth0");
  inside("route", "add", `${serverIp}/32`, "dev", "eth0");
  ip("link", "set", "cable", "up");
  ip("route", "add", `${hostIp}/32`, "dev", "cable");
  started.send("go");
  const [said] = await Promise.race([once(started, "message"), once(started, "exit")]);
  if (said !== "called") throw new Error(`the host ended with ${said}`);
}

/** The host says nothing more, and what it knew is gone. */
async function losePower(): Promise<void> {
  ip("link", "delete", "cable");
  const ended = once(host as ReturnType<typeof fork>, "exit");
  host?.kill("SIGKILL");
  await ended;
}

const networkOf = (pid: number | "self"): string => readlinkSync(`/proc/${pid}/ns/net`);
