import type { Peer, RpcError } from "cinnabar/standard";
import { Reflection } from "cinnabar-inspect";

/** A request that every server refuses at once, with or without reflection. */
const question = { service: "ping" };

/** How long a server's event loop took to answer, in milliseconds, or why it did not. A refusal is an answer, too. */
export async function roundTrip(
  peer: Peer,
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<number | RpcError> {
  const startMs = performance.now();
  const result = await peer.client(Reflection).describe.result(question, { timeoutMs, signal });
  const { ok, error } = result as { ok: boolean; error?: RpcError };
  if (ok || (error?.origin === "remote" && error.code !== "unavailable")) return performance.now() - startMs;
  return error as RpcError;
}
