import type { Port } from "../fabric/port.ts";
import { builtin } from "../wire/builtin.ts";
import { type LaneAddress, packLanes, parseLanes } from "../wire/handshake.ts";
import { type AnnouncedSession, announce, announcementMethod } from "./announcement.ts";

/** A worker lane as its dispatcher announces it. */
export interface LaneEntry {
  /** Its addresses, in the order of the dispatcher's. */
  readonly urls: readonly string[];
  /** The incarnation of its engine; 0 while no engine runs. */
  readonly incarnation: bigint;
}

/** What is used of a session to announce lanes on it. */
interface LaneSession extends AnnouncedSession {
  readonly port: Port;
}

/**
 * The worker lanes that an engine announces: in its welcome to a peer that connects, and by a control request to all
 * connected peers when they change.
 */
export class LaneBoard {
  readonly #ports: { readonly listening: readonly Port[] };
  readonly #sessions: Iterable<LaneSession>;
  #lanes: readonly LaneEntry[] = [];

  constructor(ports: { readonly listening: readonly Port[] }, sessions: Iterable<LaneSession>) {
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
      const seen = this.at(session.port);
      if (seen.length > 0) announce(session, builtin.lanes, packLanes(seen));
    }
  }
}

/** Serves `lanes`: a dispatcher announces its lanes. */
export const lanesMethod = announcementMethod("lanes", parseLanes, (peer, lanes) => peer.onLanes(lanes));
