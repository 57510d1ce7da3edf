// A server that trusts one authority, and clients that must not get in: one with a certificate of another authority, one
// that expects another name, and one that trusts another authority. `impostors.mjs KEYS OTHER_KEYS`. Prints what came of
// each.
import { Engine, implement } from "cinnabar";
import { patience, tlsOf, Vault } from "./sealed-service.mjs";

const [, , keys = "", otherKeys = ""] = process.argv;
const own = tlsOf(keys, "client");
const other = tlsOf(otherKeys, "client");
const security = { tls: tlsOf(keys, "server") };
const vault = implement(Vault, { who: () => "anybody", turn() {} });
const server = await Engine.open({ ...patience, listen: "net://127.0.0.1:0", serve: [vault], security });

/** @param {string} what @param {typeof own} tls @param {string} name */
async function connect(what, tls, name) {
  const engine = await Engine.open({ ...patience, security: { tls } });
  const peer = await engine
    .connect(/** @type {string} */ (server.urls[0]), { name })
    .catch(({ code }) => code);
  console.log(`${what}: ${typeof peer === "string" ? peer : await peer.client(Vault).who()}`);
  await engine.close();
}

await connect("the right one", own, "server.example");
await connect("a certificate of another authority", { ...other, ca: own.ca }, "server.example");
await connect("another name", own, "other.example");
await connect("another trust", { ...own, ca: other.ca }, "server.example");
await server.close();
