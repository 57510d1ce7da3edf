// A server that only peers with a certificate of its authority can call. Run it with
// `node build/examples/security/server.js [folder] [url]`; docs/guide/security.md makes the folder.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { closeOnSignals, Engine, implement } from "cinnabar";
import { Vault } from "./contract.ts";

const [folder = "cinnabar-keys", listen = "tcp://127.0.0.1:7400"] = process.argv.slice(2);
const file = (name: string) => () => readFileSync(join(folder, name));

const vault = implement(Vault, {
  open: (_, call) => `open for ${call.identity?.kind === "certificate" ? call.identity.name : "nobody"}`,
  close: () => "closed",
});

const server = await Engine.open({
  listen,
  serve: [vault],
  security: {
    tls: { cert: file("server.pem"), key: file("server.key"), ca: file("ca.pem"), crl: file("crl.pem") },
    allow: (identity, method) =>
      method === "vault.v1/open" ||
      (identity?.kind === "certificate" && identity.name === "spiffe://example/admin"),
  },
});
closeOnSignals(server);
process.on("SIGHUP", () => server.reloadSecurity());
console.log(`listening at ${server.urls[0]}`);
