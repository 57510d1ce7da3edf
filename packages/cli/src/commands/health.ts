import { Health } from "cinnabar/inspect";
import { type Peer, RpcError } from "cinnabar/standard";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import {
  type Connection,
  commandError,
  connectionHelp,
  connectionOptions,
  withEngine,
} from "../connection.ts";
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
      const state = await check(peer, service, connection);
      show(state);
      return state.status === "serving" ? 0 : 1;
    });
  },
};

async function check(peer: Peer, service: string, { timeoutMs, signal }: Connection): Promise<State> {
  try {
    return await peer.client(Health).check({ service }, { timeoutMs, signal });
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    if (error.code === "not_found") return { status: "unknown", reason: error.plainMessage };
    if (error.code === "deadline_exceeded" && peer.state === "suspect") return blocked;
    throw commandError(error);
  }
}

const blocked: State = { status: "suspect", reason: "its event loop does not answer" };

/** Returns the status of the last state when the server ends the stream; throws when the server is lost. */
async function watch(
  peer: Peer,
  service: string,
  { signal }: Connection,
  show: (state: State) => void,
): Promise<number> {
  let last: State | undefined;
  const stream = peer.client(Health).watch({ service }, { signal, idleTimeoutMs: false });
  peer.on("suspect", () => show(blocked));
  peer.on("back", ({ after }) => {
    if (after === "suspect" && last !== undefined) show(last);
  });
  try {
    for await (const state of stream) {
      last = state;
      show(state);
    }
  } catch (error) {
    throw error instanceof RpcError ? commandError(error) : error;
  }
  return last?.status === "serving" ? 0 : 1;
}

function inWords({ status, reason }: State, terminal: Terminal): string {
  const word = terminal.paint(status === "serving" ? "green" : "red", status);
  return reason === undefined ? word : `${word}: ${reason}`;
}
