import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { connectionHelp, connectionOptions, withEngine } from "../connection.ts";
import { listedServices } from "../remote-method.ts";
import { table } from "../table.ts";

const help = `Usage: cinnabar list URL [--json] [OPTION…]

Prints the services and methods that a server reports: those that this caller
may call. The server must serve reflection(engine) of cinnabar-inspect.

  --json           Prints what the server answered, as JSON.
${connectionHelp}`;

/** `cinnabar list`: the services and methods of a server. */
export const list: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, { ...connectionOptions, json: { type: "boolean" } });
    const [url, ...more] = positionals;
    if (url === undefined || more.length > 0) throw new UsageError("expected one URL");
    return withEngine("list", values, terminal, async (connection) => {
      const services = await listedServices(await connection.dial(url), connection);
      if (values.json) {
        terminal.print(JSON.stringify(services, undefined, 2).split("\n"));
        return 0;
      }
      const rows = services.flatMap(({ service, instance, methods }) =>
        methods.map(({ name, kind, idempotent, replay, priority }) => [
          `${instance === undefined ? service : `${service}#${instance}`}/${name}`,
          kind,
          [idempotent ? "idempotent" : "", replay ? "replay" : "", priority === "normal" ? "" : priority]
            .filter(Boolean)
            .join(", "),
        ]),
      );
      terminal.print(table(terminal, ["METHOD", "KIND", "PROPERTIES"], rows));
      return 0;
    });
  },
};
