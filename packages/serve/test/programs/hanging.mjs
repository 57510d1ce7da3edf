// An application for tests of `cinnabar serve`: a component that holds a server, and does not start.
import { createServer } from "node:net";
import { application, component } from "cinnabar-serve";
import { z } from "zod";

const first = component({ start: () => ({ value: 1 }) });
const hanging = component({
  needs: { first },
  config: z.object({ fails: z.boolean().default(false) }),
  start({ config }) {
    createServer().listen(0, "127.0.0.1");
    if (config.fails) throw new Error("no database");
    console.log("waits");
    return new Promise(() => {});
  },
});

export default application("shop", { first, hanging });
