import { serveFile } from "cinnabar-serve";
import { type Command, UsageError } from "../command.ts";
import { milliseconds } from "../quantities.ts";

const help = `Usage: cinnabar serve FILE [--COMPONENT.FIELD=VALUE…] [OPTION…]

Starts the application that a module exports as its default: its components in
the order of what they need. SIGTERM and SIGINT stop them in reverse, each after
a drain; a second signal ends the process at once. Status 0: it ended well. 1: a
component could not start or stop, or the configuration is wrong.

A field of the configuration comes from a flag, from the environment variable
APPLICATION_COMPONENT_FIELD, from the file, or it is the default.

  --config FILE    Reads JSON: an object of fields for each component.
  --print-config   Prints the effective configuration with the origin of each
                   value, and starts nothing. Secrets are not shown.
  --grace TIME     How long work in flight may go on at the end, such as 30s.
                   Default 10s.

Example: cinnabar serve app.js --config shop.json --orders.listen=tcp://0.0.0.0:7400`;

/** How long what the components have left open may keep the process once they have stopped. */
const lingerMs = 1_000;

/** `cinnabar serve`: starts the components of an application, and stops them on a signal. */
export const serve: Command = {
  help,
  async run(args, terminal) {
    const files: string[] = [];
    const flags: (readonly [string, string])[] = [];
    const own = new Map<string, string>();
    const rest = [...args];
    for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
      if (!arg.startsWith("--")) {
        files.push(arg);
        continue;
      }
      const at = arg.indexOf("=");
      const name = arg.slice(2, at < 0 ? undefined : at);
      if (name === "print-config" && at < 0) {
        own.set(name, "");
        continue;
      }
      const value = at < 0 ? rest.shift() : arg.slice(at + 1);
      if (value === undefined) throw new UsageError(`--${name} has no value`);
      if (name.includes(".")) flags.push([name, value]);
      else if (name === "config" || name === "grace") own.set(name, value);
      else throw new UsageError(`unknown option "--${name}"`);
    }
    const [file, ...more] = files;
    if (file === undefined || more.length > 0) throw new UsageError("expected one file");
    const grace = own.get("grace");
    const status = await serveFile({
      file,
      flags,
      configFile: own.get("config"),
      printConfig: own.has("print-config"),
      graceMs: grace === undefined ? undefined : milliseconds("--grace", grace),
      print: (line) => terminal.print(line),
      complain: (line) => terminal.complain(`cinnabar serve: ${line}`),
    });
    // A service manager starts only a process again that has ended.
    setTimeout(() => {
      terminal.complain("cinnabar serve: a component has left something open; the process ends without it");
      process.exit(status);
    }, lingerMs).unref();
    return status;
  },
};
