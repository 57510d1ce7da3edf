// Calls examples/security/server.ts with the certificate NAME of the folder. Run it with
// `node build/examples/security/client.js NAME [folder] [url]`.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Engine, RpcError } from "cinnabar";
import { Vault } from "./contract.ts";

const [name = "client", folder = "cinnabar-keys", url = "tcp://127.0.0.1:7400"] = process.argv.slice(2);
const file = (part: string) => () => readFileSync(join(folder, part));

await using engine = await Engine.open({
  security: { tls: { cert: file(`${name}.pem`), key: file(`${name}.key`), ca: file("ca.pem") } },
});
try {
  const peer = await engine.connect(url, { name: "server.example" });
  console.log(`connected to ${peer.identity?.kind === "certificate" ? peer.identity.name : "nobody"}`);
  const vault = peer.client(Vault);
  console.log(await vault.open());
  const closed = await vault.close.result();
  console.log(closed.ok ? closed.value : `close: ${closed.error.code}`);
} catch (error) {
  if (!(error instanceof RpcError)) throw error;
  console.log(error.message);
}
