import { isDeepStrictEqual } from "node:util";
import { Engine } from "cinnabar";
import { settings, tell } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";
import { Trial } from "./trial.ts";

/* Serves at `listen`, or calls `url`, moves bodies and memory both ways, and tells what came of it. */

const { listen, url } = settings<{ listen?: string; url?: string }>();
const bytes = 3 << 20;

if (listen !== undefined) {
  await Engine.open({ listen, serve: [serveTrial(() => "")] });
  tell("listening");
} else if (url !== undefined) {
  await using engine = await Engine.open();
  const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
  const token = "t".repeat(20_000);
  const echoed = (await trial.echo({ token })).token === token;
  const uploaded = await trial.upload(new Uint8Array(bytes).fill(7));
  const downloaded = (await trial.download({ bytes })).byteLength;
  const memory = new Uint8Array(bytes);
  const put = await trial.put({ into: engine.expose(memory, { access: "write" }), value: 5 });
  const filled = isDeepStrictEqual(memory, new Uint8Array(bytes).fill(5));
  tell("moved", { echoed, uploaded, downloaded, put, filled });
}
