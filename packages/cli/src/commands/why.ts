import type { OpenCall } from "cinnabar/inspect";
import type { Peer } from "cinnabar/standard";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import type { CommandError } from "../command-error.ts";
import {
  type Connection,
  connectionHelp,
  connectionOptions,
  type Server,
  serversOf,
  withEngine,
} from "../connection.ts";
import { inspect, inspectError, inWords, urlsOf } from "../inspected.ts";
import { integer, milliseconds } from "../quantities.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar why URL… [--service NAME] [--older-than TIME] [--limit N]
       [--json] [OPTION…]

Prints where the open calls of engines stand, the oldest first: the time in each
phase, and what each waits for. Given the URLs of both ends of a call, it shows
the caller's side and the server's side together. The engines must serve
inspection(engine). Status 0: every engine has answered.

  --service NAME     Only calls of this service.
  --older-than TIME  Only calls that are older, such as 500ms.
  --limit N          At most so many calls, 1 to 1000. Default: 20.
  --json             Prints one JSON object.
${connectionHelp}`;

/** A call with what is known of it at each end. */
interface Joined {
  readonly method: string;
  /** Names the session, and the call in it; "" and 0 before its request has left. */
  readonly session: string;
  readonly callId: number;
  readonly ageMs: number;
  /** What it waits for, in words. */
  readonly why: string;
  readonly caller?: Side;
  readonly server?: Side;
}

interface Side extends OpenCall {
  /** The URL of the engine that reported it. */
  readonly url: string;
}

/** What one engine has answered. */
interface Answer {
  readonly url: string;
  readonly incarnation: string;
  readonly health: string;
  /** Its sessions, by name, with the state of the peer. */
  readonly sessions: ReadonlyMap<string, string>;
  readonly calls: readonly OpenCall[];
  readonly leftOut: number;
}

/** `cinnabar why`: where open calls stand. */
export const why: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, {
      ...connectionOptions,
      service: { type: "string" },
      "older-than": { type: "string" },
      limit: { type: "string", default: "20" },
      json: { type: "boolean" },
    });
    const named = urlsOf(positionals);
    const older = values["older-than"];
    const limit = integer("--limit", values.limit, 1, 1000);
    const filter = {
      ...(values.service === undefined ? {} : { service: values.service }),
      ...(older === undefined ? {} : { minAgeMs: milliseconds("--older-than", older) }),
    };
    return withEngine("why", values, terminal, async (connection) => {
      const servers = serversOf(named, connection.names);
      const asked = await Promise.all(servers.map((server) => ask(server, filter, connection)));
      const answers = asked.filter((one): one is Answer => "calls" in one);
      const failures = asked.filter((one): one is CommandError => !("calls" in one));
      const [first] = failures;
      if (first !== undefined && answers.length === 0 && servers.length === 1) throw first;
      const calls = join(answers);
      const shown = calls.slice(0, limit);
      const leftOut = calls.length - shown.length + answers.reduce((sum, answer) => sum + answer.leftOut, 0);
      if (values.json) {
        const engines = answers.map(({ url, incarnation, health }) => ({ url, incarnation, health }));
        terminal.print(JSON.stringify({ engines, calls: shown, leftOut }));
      } else if (answers.length > 0) terminal.print(text(shown, leftOut, terminal));
      for (const { message } of failures) terminal.complain(`cinnabar why: ${message}`);
      return first?.status ?? 0;
    });
  },
};

async function ask(
  server: Server,
  filter: { readonly service?: string; readonly minAgeMs?: number },
  connection: Connection,
): Promise<Answer | CommandError> {
  const { url } = server;
  const { timeoutMs, signal } = connection;
  let peer: Peer | undefined;
  try {
    const { inspection, ...inspected } = await inspect(server, connection);
    peer = inspected.peer;
    const [{ incarnation, calls, leftOut }, { health, peers }] = await Promise.all([
      inspection.calls(filter, { timeoutMs, signal }),
      inspection.snapshot({ timeoutMs, signal }),
    ]);
    const sessions = new Map(peers.map(({ session, state }) => [session, state]));
    return { url, incarnation, health: health.status, sessions, calls, leftOut };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    return inspectError(error, url, peer);
  }
}

/** The calls of all engines, the oldest first: both ends of a call are one. */
function join(answers: readonly Answer[]): Joined[] {
  const served = new Map<string, { readonly call: OpenCall; readonly answer: Answer }>();
  for (const answer of answers)
    for (const call of answer.calls) if (call.direction === "in") served.set(keyOf(call), { call, answer });
  const joined: Joined[] = [];
  for (const answer of answers) {
    for (const call of answer.calls) {
      if (call.direction === "in") continue;
      const key = keyOf(call);
      const other = call.callId === 0 ? undefined : served.get(key);
      if (other !== undefined) served.delete(key);
      joined.push(joinedOf({ call, answer }, other, answers));
    }
  }
  for (const side of served.values()) joined.push(joinedOf(undefined, side, answers));
  return joined.sort((a, b) => b.ageMs - a.ageMs);
}

const keyOf = ({ session, callId, method }: OpenCall): string => `${session} ${callId} ${method}`;

interface Told {
  readonly call: OpenCall;
  readonly answer: Answer;
}

function joinedOf(caller: Told | undefined, server: Told | undefined, answers: readonly Answer[]): Joined {
  const { method, session, callId, ageMs } = (caller ?? (server as Told)).call;
  return {
    method,
    session,
    callId,
    ageMs,
    why: reasonOf(caller, server, answers),
    ...(caller === undefined ? {} : { caller: { url: caller.answer.url, ...caller.call } }),
    ...(server === undefined ? {} : { server: { url: server.answer.url, ...server.call } }),
  };
}

/** What a call waits for. The server knows more of a call than its caller. */
function reasonOf(caller: Told | undefined, server: Told | undefined, answers: readonly Answer[]): string {
  if (server !== undefined) return servedReason(server.call);
  const { call, answer } = caller as Told;
  const state = answer.sessions.get(call.session);
  switch (call.phase) {
    case "waiting":
      return "waits for a place in the window of its session, or for the check of its input";
    case "connecting":
      return `a session with ${call.peer} is being opened`;
    case "backoff":
      return "an attempt has failed, and the next follows";
    case "pulling":
      return "its long answer is being pulled";
    case "cancelling":
      return "its caller has given up, and the server has not confirmed that it has stopped";
    default:
      if (state === "blocked") return "the event loop of its server is blocked";
      return answers.some((other) => other !== answer && other.sessions.has(call.session))
        ? "its server does not have it: it is on its way, or has just ended"
        : `sent to ${call.peer}; give the URL of this engine, too`;
  }
}

function servedReason({ phase, transfers }: OpenCall): string {
  const moving = transfers === 1 ? "a transfer is" : `${transfers} transfers are`;
  if (phase === "queued") return "waits in admission control until other handlers end";
  if (phase === "ended") return `its handler has ended, and ${moving} under way`;
  return transfers > 0 ? `its handler runs, and ${moving} under way` : "its handler runs";
}

function text(calls: readonly Joined[], leftOut: number, terminal: Terminal): string[] {
  const lines = calls.flatMap((call) => [
    terminal.paint("bold", `${call.method}: ${call.why}`),
    `  open for ${inWords(call.ageMs)}, ${deadlineOf(call)}${numberOf(call)}`,
    ...sideLines("caller", call.caller),
    ...sideLines("server", call.server),
  ]);
  if (calls.length === 0) lines.push("no call is open");
  if (leftOut > 0) lines.push(`${leftOut} more calls were left out`);
  return lines;
}

function deadlineOf({ caller, server }: Joined): string {
  const { timeLeftMs } = caller ?? (server as Side);
  if (timeLeftMs === 0) return "its deadline has passed";
  // A stream without a limit has the longest deadline.
  return timeLeftMs > 2 ** 31 ? "no deadline" : `${inWords(timeLeftMs)} left`;
}

const numberOf = ({ session, callId }: Joined): string =>
  callId === 0 ? "" : `, call ${callId} of session ${session}`;

function sideLines(name: string, side: Side | undefined): string[] {
  if (side === undefined) return [];
  const { url, peer, phases, grantedBytes, itemsSent, itemsReceived } = side;
  const parts = phases.map(({ phase, ms }) => `${phase} ${inWords(ms)}`);
  if (grantedBytes > 0) parts.push(`lends ${grantedBytes} bytes`);
  if (itemsSent + itemsReceived > 0) parts.push(`${itemsSent} items sent, ${itemsReceived} received`);
  return [`  ${name} ${url} with ${peer}: ${parts.join(", ")}`];
}
