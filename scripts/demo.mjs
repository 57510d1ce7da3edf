// `npm run demo [-- [--compare] folder]`: sets up what the demo needs, then becomes the demo.
import { runExample } from "./setup/run-example.mjs";

await runExample("demo/main");
