import type { Peer } from "cinnabar/standard";
import type { EndedCall } from "cinnabar-inspect";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import type { CommandError } from "../command-error.ts";
import { connectionHelp, connectionOptions, type Server, serversOf, withEngine } from "../connection.ts";
import { inspect, inspectError, inWords, urlsOf } from "../inspected.ts";
import { integer, milliseconds } from "../quantities.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar tail URL… [--service NAME] [--failed]
       [--slower-than TIME] [--per-second N] [--count N] [--json] [OPTION…]

Prints the calls of engines as they end, those that they serve (in) and those
that they make (out): when, direction, method, code, how long, the time in each
phase, and the peer. Of several engines each line begins with the URL. It goes on
until Ctrl-C or until all engines are gone. The engines must serve
inspection(engine). Inputs and outputs are not shown.

  --service NAME      Only calls of this service.
  --failed            Only calls that have failed.
  --slower-than TIME  Only calls that took so long, such as 10ms.
  --per-second N      At most so many of an engine in a second, 1 to 100. Default:
                      100. How many were left out is said on standard error.
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
    const named = urlsOf(positionals);
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
      const servers = serversOf(named, connection.names);
      const enough = new AbortController();
      const signal = AbortSignal.any([connection.signal, enough.signal]);
      let left = most;
      const take = (url: string, calls: readonly EndedCall[]) => {
        for (const call of calls.slice(0, left)) {
          const line = () => (servers.length === 1 ? "" : `${url} `) + lineOf(call, terminal);
          terminal.print(values.json ? JSON.stringify({ url, ...call }) : line());
        }
        left -= Math.min(left, calls.length);
        if (left === 0) enough.abort();
      };
      /** Undefined: enough calls have come, or the command is to end. */
      const follow = async (server: Server): Promise<CommandError | undefined> => {
        const { url } = server;
        let peer: Peer | undefined;
        try {
          const { inspection, ...inspected } = await inspect(server, connection);
          peer = inspected.peer;
          peer.on("suspect", () =>
            terminal.complain(`cinnabar tail: ${url}: its event loop does not answer`),
          );
          for await (const { calls, leftOut } of inspection.tail(filter, { signal })) {
            take(url, calls);
            if (left > 0 && leftOut > 0)
              terminal.complain(`cinnabar tail: ${url}: ${leftOut} more calls were left out`);
          }
        } catch (error) {
          if (error instanceof UsageError) throw error;
          if (!signal.aborted) return inspectError(error, url, peer);
        }
        return undefined;
      };
      const failures = await Promise.all(
        servers.map(async (server) => {
          const failure = await follow(server);
          // The others go on.
          if (failure !== undefined && servers.length > 1)
            terminal.complain(`cinnabar tail: ${failure.message}`);
          return failure;
        }),
      );
      const first = left === 0 ? undefined : failures.find((failure) => failure !== undefined);
      if (first !== undefined && servers.length === 1) throw first;
      return first?.status ?? 0;
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
