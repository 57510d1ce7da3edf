import { setTimeout as pause } from "node:timers/promises";
import { Histogram, type RpcError } from "cinnabar/standard";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { statusOf } from "../command-error.ts";
import { connectionHelp, connectionOptions, withEngine } from "../connection.ts";
import { integer, milliseconds } from "../quantities.ts";
import { roundTrip } from "../round-trip.ts";

const help = `Usage: cinnabar ping URL [--count N] [--interval TIME] [--json] [OPTION…]

Asks a server for a service that it does not have, again and again, and prints how
long each answer took. The server's event loop answers, whatever it serves, so
this is what a small call takes. The first line says how long it took to connect:
to look up the name, to open the connection, and to prove who both sides are. It
then names what the server runs: Cinnabar and its protocol's version, and the
transport. Ends with status 0 if every ping was answered.

  --count N        How many. Default: 4.
  --interval TIME  Time between two, such as 100ms. Default: 1s.
  --json           Prints the summary as one JSON object.
${connectionHelp}`;

/** `cinnabar ping`: round trips to a server. */
export const ping: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, {
      ...connectionOptions,
      count: { type: "string", default: "4" },
      interval: { type: "string", default: "1s" },
      json: { type: "boolean" },
    });
    const [url, ...more] = positionals;
    if (url === undefined || more.length > 0) throw new UsageError("expected one URL");
    const count = integer("--count", values.count, 1, 1_000_000);
    const intervalMs = milliseconds("--interval", values.interval);
    return withEngine("ping", values, terminal, async (connection) => {
      const startMs = performance.now();
      const peer = await connection.dial(url);
      const connectMs = performance.now() - startMs;
      const say = values.json ? () => {} : (line: string) => terminal.print(line);
      say(
        `${peer.url}: connected in ${inMs(connectMs)}, with name look-up and handshake; the server is ${peer.agent}`,
      );
      const took = new Histogram();
      let sent = 0;
      let failed: RpcError | undefined;
      while (sent < count && !connection.signal.aborted) {
        if (sent > 0) await pause(intervalMs, undefined, { signal: connection.signal }).catch(() => {});
        if (connection.signal.aborted) break;
        sent++;
        const result = await roundTrip(peer, connection);
        if (typeof result === "number") {
          took.record(result);
          say(`ping ${sent}: ${inMs(result)}`);
        } else if (result.code !== "cancelled") {
          failed = result;
          say(`ping ${sent}: ${result.message}`);
        }
      }
      const answered = took.count;
      if (values.json) {
        const { min, mean, max } = took.summary();
        const answers =
          answered === 0 ? {} : { minMs: min, meanMs: mean, p99Ms: took.percentile(99), maxMs: max };
        terminal.print(
          JSON.stringify({ url: peer.url, agent: peer.agent, connectMs, sent, answered, ...answers }),
        );
      } else if (answered > 0) {
        const p50 = took.percentile(50);
        say(
          `${sent} sent, ${answered} answered: ${inMs(took.min)} min, ${inMs(p50)} median, ${inMs(took.max)} max`,
        );
      } else say(`${sent} sent, none answered`);
      return failed === undefined ? 0 : statusOf(failed.code);
    });
  },
};

const inMs = (ms: number): string => `${ms < 10 ? ms.toFixed(3) : ms.toFixed(1)} ms`;
