// Runs sealed-server.mjs and sealed-client.mjs, each under the Node that is named, with these options of Node:
// `sealed-pair.mjs KEYS HOW NODE_OF_SERVER NODE_OF_CLIENT [OPTION …]`.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const [, , keys = "", how = "", nodeOfServer = "", nodeOfClient = "", ...nodeOptions] = process.argv;
/** @param {string} name @param {...string} args */
const commandOf = (name, ...args) => [
  ...nodeOptions,
  fileURLToPath(new URL(name, import.meta.url)),
  keys,
  how,
  ...args,
];
const server = spawn(nodeOfServer, commandOf("sealed-server.mjs"), { stdio: ["pipe", "pipe", "inherit"] });
const serverEnded = once(server, "close");
const line = await Promise.race([
  once(createInterface({ input: server.stdout }), "line"),
  serverEnded.then(([status]) => Promise.reject(new Error(`the server ended with ${status}`))),
]);
const client = spawn(nodeOfClient, commandOf("sealed-client.mjs", line[0]), {
  stdio: ["ignore", "inherit", "inherit"],
});
const [status] = await once(client, "close");
server.stdin.end();
const [serverStatus] = await serverEnded;
process.exitCode = status || serverStatus;
