// Opens a sealed session with sealed-server.mjs, calls, and moves memory both ways. Prints who was there.
import { Engine } from "cinnabar";
import { nameOf, patience, securityOf, Vault } from "./sealed-service.mjs";

const [, , keys = "", how = "", url = ""] = process.argv;
const engine = await Engine.open({ ...patience, security: securityOf(keys, how, "client") });
const peer = await engine.connect(url, how === "certificates" ? { name: "server.example" } : {});
const vault = peer.client(Vault, { timeoutMs: 60_000 });
const who = await vault.who();

const memory = Uint8Array.from({ length: 3_000_001 }, (_, i) => i % 251);
const turned = new Uint8Array(memory.length);
const from = engine.expose(memory, { access: "read" });
const into = engine.expose(turned, { access: "write" });
await vault.turn({ from, into });
const isRight = turned.reverse().every((byte, i) => byte === memory[i]);
console.log(
  `${who} asked ${nameOf(peer.identity)}, ${isRight ? memory.length : "wrong"} bytes there and back`,
);
// Both sides have proven themselves, and nobody on the path can read along.
if (!peer.isConfidential) throw new Error("the session is not sealed");
await engine.close();

// A process that proves nothing is turned away.
const stranger = await Engine.open(patience);
const refused = await stranger.connect(url).catch((error) => error.code);
console.log(`a stranger: ${refused}`);
await stranger.close();
