// `npm run example -- backend`: the same as `cinnabar serve app.js`, from a checkout.
import { fileURLToPath } from "node:url";
import { serveFile } from "cinnabar-serve";

process.exitCode = await serveFile({
  file: fileURLToPath(new URL("app.js", import.meta.url)),
  print: (line) => console.log(line),
  complain: (line) => console.error(line),
});
