import type { Peer, RpcError } from "cinnabar/standard";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { commandError } from "../command-error.ts";
import { type Connection, connectionHelp, connectionOptions, withEngine } from "../connection.ts";
import { roundTrip } from "../round-trip.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar health URL [SERVICE] [--watch] [--json] [OPTION…]

Prints whether a server, or one of its services, serves: serving, not_serving,
draining, unknown (there is no such service), or suspect (the server lives, but
its event loop does not answer). Status 0: serving. 1: another state. 78: the
server cannot be reached.

  --watch          Prints the health now and at each change, until Ctrl-C or until
                   the server is gone.
  --json           Prints each state as one JSON object on one line.
${connectionHelp}`;

/** A state as it is printed. */
interface State {
  readonly status: "serving" | "not_serving" | "draining" | "unknown" | "suspect";
  readonly reason?: string | undefined;
}

/**
 * How often a watch asks whether the server's event loop answers. Health itself arrives on each change, without a
 * request.
 */
const lookMs = 1000;

/** `cinnabar health`: whether a server serves. */
export const health: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, {
      ...connectionOptions,
      watch: { type: "boolean" },
      json: { type: "boolean" },
    });
    const [url, service = "", ...more] = positionals;
    if (url === undefined || more.length > 0) throw new UsageError("expected a URL, and at most one service");
    const show = (state: State) =>
      terminal.print(values.json ? JSON.stringify(state) : inWords(state, terminal));
    return withEngine("health", values, terminal, async (connection) => {
      const peer = await connection.dial(url);
      if (values.watch) return watch(peer, service, connection, show);
      const state = stateOf(peer, service);
      show(state);
      return state.status === "serving" ? 0 : 1;
    });
  },
};

function stateOf(peer: Peer, service: string): State {
  if (peer.state === "suspect") return { status: "suspect", reason: "its event loop does not answer" };
  return peer.health(service) ?? { status: "unknown", reason: `there is no service "${service}" here` };
}

/** Shows each state until the server is gone. @throws CommandError when it is lost; it returns when it had drained. */
async function watch(
  peer: Peer,
  service: string,
  { signal, timeoutMs }: Connection,
  show: (state: State) => void,
): Promise<number> {
  let last: State | undefined;
  const look = () => {
    const state = stateOf(peer, service);
    if (state.status === last?.status && state.reason === last.reason) return;
    last = state;
    show(state);
  };
  let isAsking = false;
  const ask = async () => {
    if (isAsking) return;
    isAsking = true;
    await roundTrip(peer, { timeoutMs, signal });
    isAsking = false;
  };
  const asking = setInterval(ask, lookMs);
  const lost = await new Promise<RpcError | undefined>((resolve) => {
    for (const event of ["health", "draining", "suspect", "back"] as const) peer.on(event, look);
    peer.on("lost", ({ reason }) => resolve(reason));
    signal.addEventListener("abort", () => resolve(undefined), { once: true });
    look();
  });
  clearInterval(asking);
  if (lost !== undefined && last?.status !== "draining") throw commandError(lost, peer.url);
  return last?.status === "serving" ? 0 : 1;
}

function inWords({ status, reason }: State, terminal: Terminal): string {
  const word = terminal.paint(status === "serving" ? "green" : "red", status);
  return reason === undefined ? word : `${word}: ${reason}`;
}
