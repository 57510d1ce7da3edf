import { type Engine, type Peer, RpcError } from "cinnabar/standard";
import { hostIdentity, urlsFrom } from "../group/member-link.ts";
import type { Member } from "../view/view.ts";

/**
 * The result of a question to a process. `gone`: each of its URLs has no listener, or another process. Its host has
 * answered so, which a network that is down cannot. `silent`: the state is uncertain.
 */
export type Verdict = "answers" | "gone" | "silent";

/** Asks the process of a member. */
export async function probe(engine: Engine, member: Member, timeoutMs: number): Promise<Verdict> {
  const urls = urlsFrom(member, hostIdentity());
  const all = await Promise.all(urls.map((url) => probeAt(engine, url, member.engine, timeoutMs)));
  // A URL of a fabric that this process does not know says nothing.
  const verdicts = all.filter((verdict) => verdict !== undefined);
  if (verdicts.includes("answers")) return "answers";
  return verdicts.length > 0 && verdicts.every((verdict) => verdict === "gone") ? "gone" : "silent";
}

async function probeAt(
  engine: Engine,
  url: string,
  wanted: string | undefined,
  timeoutMs: number,
): Promise<Verdict | undefined> {
  let peer: Peer;
  try {
    peer = await engine.connect(url, { timeoutMs });
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    return isNobody(error) ? "gone" : "silent";
  }
  const found = peer.incarnation?.toString(16).padStart(16, "0");
  peer.close();
  return wanted === undefined || found === wanted ? "answers" : "gone";
}

/** Whether the host of a process reports that the port has no listener. */
export function isNobody(error: unknown): boolean {
  return error instanceof RpcError && error.fabric?.name === "ECONNREFUSED";
}
