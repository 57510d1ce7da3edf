// A server and a client as two processes: passes the addresses on. For an installed package.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

const folder = import.meta.dirname ?? process.cwd();
const server = spawn(process.execPath, [`${folder}/server.mjs`, ...process.argv.slice(2)], {
  stdio: ["pipe", "pipe", "inherit"],
});
const [line] = await once(createInterface({ input: server.stdout }), "line");
const client = spawn(process.execPath, [`${folder}/client.mjs`, ...JSON.parse(line)], {
  stdio: ["ignore", "inherit", "inherit"],
});
const [status] = await once(client, "close");
server.stdin.end();
const [serverStatus] = await once(server, "close");
process.exitCode = status || serverStatus;
