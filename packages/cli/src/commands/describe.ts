import type { DescribedMethod, DescribedService } from "cinnabar-inspect";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { connectionHelp, connectionOptions, withEngine } from "../connection.ts";
import { servicesIn } from "../contract-file.ts";
import { describedService, listedServices, methodOf, serviceName } from "../remote-method.ts";
import { typeText } from "../schema-text.ts";
import type { Terminal } from "../terminal.ts";
import { readSchema } from "../told-schema.ts";

const help = `Usage: cinnabar describe URL [SERVICE[/METHOD]] [--json] [OPTION…]

Prints what methods take and give, in the words of TypeScript. Without a name it
prints all services. The server must serve reflection(engine) of
cinnabar-inspect, unless --contract names the contract.

  --json           Prints JSON Schemas (draft 2020-12) with all bounds.
  --contract FILE  Takes the contract from a module that exports the service.
${connectionHelp}`;

/** `cinnabar describe`: what the methods of a server take and give. */
export const describe: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, {
      ...connectionOptions,
      json: { type: "boolean" },
      contract: { type: "string" },
    });
    const [url, name, ...more] = positionals;
    if (url === undefined || more.length > 0) throw new UsageError("expected a URL, and at most one name");
    return withEngine("describe", values, terminal, async (connection) => {
      const peer = await connection.dial(url);
      const services =
        values.contract === undefined
          ? (await listedServices(peer, connection)).map(({ service, instance }) => served(service, instance))
          : (await servicesIn(values.contract)).map((service) => service.name);
      const wanted = (name === undefined ? services : [name]).map((each) => namesOf(each, services));
      const described: DescribedService[] = [];
      for (const each of wanted) {
        const whole = await describedService(peer, connection, each, values.contract);
        if (each.method === undefined) described.push(whole);
        else
          described.push({ ...whole, methods: [methodOf(whole, { ...each, method: each.method }).method] });
      }
      if (values.json) {
        const [first] = described;
        const only = name === undefined ? described : first;
        terminal.print(JSON.stringify(only, undefined, 2).split("\n"));
      } else
        terminal.print(
          described.flatMap((each, at) => [...(at === 0 ? [] : [""]), ...inWords(each, terminal)]),
        );
      return 0;
    });
  },
};

const served = (service: string, instance: string | undefined) =>
  instance === undefined ? service : `${service}#${instance}`;

/** The service and the method of a name. The names of services may have slashes, so those that are known decide. */
function namesOf(name: string, services: readonly string[]) {
  const slash = name.lastIndexOf("/");
  if (services.includes(name) || slash < 1) return { ...serviceName(name), method: undefined };
  return { ...serviceName(name.slice(0, slash)), method: name.slice(slash + 1) };
}

function inWords({ service, instance, methods }: DescribedService, terminal: Terminal): string[] {
  const lines = methods.flatMap((method) => ["", ...methodInWords(method)]);
  return [terminal.paint("bold", served(service, instance)), ...lines.slice(1)];
}

function methodInWords(method: DescribedMethod): string[] {
  const { name, kind, idempotent, replay, timeoutMs, input, items, output, errors } = method;
  const flags = [
    kind,
    idempotent ? "idempotent" : "",
    replay ? "replay" : "",
    timeoutMs === undefined ? "" : `at most ${timeoutMs} ms`,
  ];
  const parts: [string, string][] = [];
  if (input !== undefined)
    parts.push([items === undefined ? "input" : "opening", typeText(readSchema(input))]);
  if (items !== undefined) parts.push(["items", typeText(readSchema(items))]);
  if (output !== undefined)
    parts.push([
      kind === "serverStream" || kind === "duplexStream" ? "each item" : "output",
      typeText(readSchema(output)),
    ]);
  for (const [reason, schema] of Object.entries(errors))
    parts.push(["error", `${reason} ${typeText(readSchema(schema))}`]);
  return [
    `  ${name} (${flags.filter(Boolean).join(", ")})`,
    ...parts.map(([title, text]) => `    ${title.padEnd(10)}${text}`),
  ];
}
