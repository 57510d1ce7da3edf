import { builtinMethod, type ServedMethod } from "../transfer/control/control-method.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";

/** What is used of a session to announce something on it. */
export interface AnnouncedSession {
  readonly state: string;
  request(method: number, input: unknown): Promise<unknown>;
}

/** Announces a change to the peer of an open session by the control request `method`. The welcome told what was before. */
export function announce(session: AnnouncedSession, method: number, packed: readonly unknown[]): void {
  if (session.state !== "open") return;
  // A peer that is lost learns it from its next welcome.
  session.request(method, packed).catch(() => {});
}

/** Serves such a control request. `parse` reads it as it reads the same part of a greeting. */
export function announcementMethod<T extends object>(
  name: string,
  parse: (parts: readonly unknown[]) => T | string,
  take: (peer: PeerLink, announced: T) => void,
): ServedMethod {
  return builtinMethod<T>(
    name,
    (parts) => {
      const parsed = parse(parts);
      return typeof parsed === "string" ? undefined : parsed;
    },
    (announced, call, peer) => {
      take(peer, announced);
      call.settle({ value: undefined });
    },
  );
}
