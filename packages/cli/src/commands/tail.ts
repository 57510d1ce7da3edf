import type { EndedCall } from "cinnabar-inspect";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { connectionHelp, connectionOptions, withEngine } from "../connection.ts";
import { inspect, inspectError, inWords } from "../inspected.ts";
import { integer, milliseconds } from "../quantities.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar tail URL [--service NAME] [--failed] [--slower-than TIME]
       [--per-second N] [--count N] [--json] [OPTION…]

Prints the calls of an engine as they end, those that it serves (in) and those
that it makes (out): when, direction, method, code, how long, the time in each
phase, and the peer. It goes on until Ctrl-C or until the engine is gone. The
engine must serve inspection(engine). Inputs and outputs are not shown.

  --service NAME      Only calls of this service.
  --failed            Only calls that have failed.
  --slower-than TIME  Only calls that took so long, such as 10ms.
  --per-second N      At most so many in a second, 1 to 100. Default: 100. How
                      many were left out is said on standard error.
  --count N           Ends after so many calls.
  --json              Prints each call as one JSON object on one line.
${connectionHelp}`;

/** `cinnabar tail`: calls as they end. */
export const tail: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, {
      ...connectionOptions,
      service: { type: "string" },
      failed: { type: "boolean", default: false },
      "slower-than": { type: "string" },
      "per-second": { type: "string", default: "100" },
      count: { type: "string" },
      json: { type: "boolean" },
    });
    const [url, ...more] = positionals;
    if (url === undefined || more.length > 0) throw new UsageError("expected one URL");
    const slower = values["slower-than"];
    const most =
      values.count === undefined ? Number.POSITIVE_INFINITY : integer("--count", values.count, 1, 1e9);
    const filter = {
      ...(values.service === undefined ? {} : { service: values.service }),
      ...(slower === undefined ? {} : { slowerThanMs: milliseconds("--slower-than", slower) }),
      failed: values.failed,
      perSecond: integer("--per-second", values["per-second"], 1, 100),
    };
    return withEngine("tail", values, terminal, async (connection) => {
      const { peer, inspection } = await inspect(url, connection);
      peer.on("suspect", () => terminal.complain(`cinnabar tail: ${url}: its event loop does not answer`));
      let told = 0;
      try {
        for await (const { calls, leftOut } of inspection.tail(filter, { signal: connection.signal })) {
          for (const call of calls.slice(0, most - told))
            terminal.print(values.json ? JSON.stringify(call) : lineOf(call, terminal));
          told += calls.length;
          if (told >= most) break;
          if (leftOut > 0) terminal.complain(`cinnabar tail: ${leftOut} more calls were left out`);
        }
      } catch (error) {
        throw inspectError(error, url, peer);
      }
      return 0;
    });
  },
};

function lineOf(
  { atMs, direction, method, code, tookMs, phases, peer }: EndedCall,
  terminal: Terminal,
): string {
  const when = new Date(atMs).toISOString().slice(11, 23);
  const how = terminal.paint(code === "ok" ? "green" : "red", code);
  const parts = phases.map(({ phase, ms }) => `${phase} ${inWords(ms)}`).join(", ");
  return `${when} ${direction.padEnd(3)} ${method} ${how} ${inWords(tookMs)} (${parts}) ${peer}`;
}
