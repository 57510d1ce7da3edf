import { type Client, type Peer, RpcError } from "cinnabar/standard";
import { Inspection } from "cinnabar-inspect";
import { UsageError } from "./command.ts";
import { CommandError, commandError, statusOf } from "./command-error.ts";
import type { Connection, Server } from "./connection.ts";

/** An engine that a command looks into. */
export interface Inspected {
  readonly url: string;
  readonly peer: Peer;
  readonly inspection: Client<typeof Inspection>;
}

/** The URLs of a command. @throws UsageError for no URL, and for one that is named twice. */
export function urlsOf(positionals: readonly string[]): readonly string[] {
  if (positionals.length === 0) throw new UsageError("expected at least one URL");
  const twice = positionals.find((url, at) => positionals.indexOf(url) !== at);
  if (twice !== undefined) throw new UsageError(`${twice} is named twice`);
  return positionals;
}

/** Connects to an engine to look into it. @throws UsageError, CommandError. */
export async function inspect(server: Server, connection: Connection): Promise<Inspected> {
  const peer = await connection.dial(server);
  return { url: server.url, peer, inspection: peer.client(Inspection) };
}

/** Why an engine cannot be looked into, in one line with the remedy. */
export function inspectError(error: unknown, url: string, peer?: Peer): CommandError {
  if (!(error instanceof RpcError)) return commandError(error);
  if (error.code === "unimplemented")
    return new CommandError(
      `${url}: this engine does not let others look into it; let it serve inspection(engine) of cinnabar-inspect`,
      statusOf("unimplemented"),
      error,
    );
  if (error.code === "deadline_exceeded" && peer?.state === "suspect")
    return new CommandError(`${url}: ${blocked}`, statusOf("deadline_exceeded"), error);
  return commandError(error, url);
}

export const blocked = "its event loop is blocked and does not answer; look at what it computes";

/** A time for people: three digits and a unit. */
export function inWords(ms: number): string {
  if (ms < 0.9995) return `${Math.round(ms * 1000)} µs`;
  if (ms < 999.5) return `${digits(ms)} ms`;
  if (ms < 59_950) return `${digits(ms / 1000)} s`;
  if (ms < 3_597_000) return `${digits(ms / 60_000)} min`;
  return `${digits(ms / 3_600_000)} h`;
}

/** A number for people: three digits, and k, M or G. */
export function shortNumber(number: number): string {
  if (number < 999.5) return number === Math.round(number) ? `${number}` : digits(number);
  if (number < 999_500) return `${digits(number / 1e3)}k`;
  return number < 999_500_000 ? `${digits(number / 1e6)}M` : `${digits(number / 1e9)}G`;
}

function digits(number: number): string {
  return number < 9.995 ? number.toFixed(2) : number < 99.95 ? number.toFixed(1) : number.toFixed(0);
}
