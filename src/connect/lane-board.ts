import type { Port } from "../fabric/port.ts";
import { builtinMethod } from "../transfer/control/control-method.ts";
import { builtin } from "../wire/builtin.ts";
import { type LaneAddress, packLanes, parseLanes } from "../wire/handshake.ts";

/** A worker lane as its dispatcher announces it. */
export interface LaneEntry {
  /** Its addresses, in the order of the dispatcher's. */
  readonly urls: readonly string[];
  /** The incarnation of its engine; 0 while no engine runs. */
  readonly incarnation: bigint;
}

/** What is used of a session to announce lanes on it. */
interface AnnouncedSession {
  readonly state: string;
  readonly port: Port;
  request(method: number, input: unknown): Promise<unknown>;
}

/**
 * The worker lanes that an engine announces: in its welcome to a peer that connects, and by a control request to all
 * connected peers when they change.
 */
export class LaneBoard {
  readonly #ports: { readonly listening: readonly Port[] };
  readonly #sessions: Iterable<AnnouncedSession>;
  #lanes: readonly LaneEntry[] = [];

  constructor(ports: { readonly listening: readonly Port[] }, sessions: Iterable<AnnouncedSession>) {
    this.#ports = ports;
    this.#sessions = sessions;
  }

  /** The lanes as a peer that connected to this port may reach them. */
  at(port: Port): LaneAddress[] {
    const index = this.#ports.listening.indexOf(port);
    return this.#lanes.flatMap(({ urls, incarnation }) => {
      const url = urls[index];
      return url === undefined ? [] : [{ url, incarnation }];
    });
  }

  post(lanes: readonly LaneEntry[]): void {
    this.#lanes = lanes;
    for (const session of this.#sessions) {
      const seen = session.state === "open" ? this.at(session.port) : [];
      // A peer that does not know lanes answers `unimplemented`; a lost one is told in its next welcome.
      if (seen.length > 0) session.request(builtin.lanes, packLanes(seen)).catch(() => {});
    }
  }
}

/** Serves `lanes`: a dispatcher announces its lanes. */
export const lanesMethod = builtinMethod<LaneAddress[]>(
  "lanes",
  (parts) => {
    const lanes = parseLanes(parts);
    return typeof lanes === "string" ? undefined : lanes;
  },
  (lanes, call, peer) => {
    peer.onLanes(lanes);
    call.settle({ value: undefined });
  },
);
