// Serves to those that have proven who they are, over tcp or at `LISTEN`, until its input ends. Prints where.
import { Engine, implement } from "cinnabar";
import { nameOf, patience, securityOf, Vault } from "./sealed-service.mjs";

const [, , keys = "", how = ""] = process.argv;
const vault = implement(Vault, {
  who: (_, { identity }) => nameOf(identity),
  async turn({ from, into }, call) {
    const bytes = await call.pull(from, Uint8Array);
    await call.put(bytes.reverse(), into);
  },
});
const security = securityOf(keys, how, "server");
const listen = process.env.LISTEN ?? "tcp://127.0.0.1:0";
const engine = await Engine.open({ ...patience, listen, serve: [vault], security });
console.log(engine.urls[0]);
process.stdin.resume();
process.stdin.on("end", () => engine.close());
