import type { Port } from "../fabric/port.ts";
import type { Session } from "../session/session.ts";
import { builtin } from "../wire/builtin.ts";
import { type LaneAddress, packLanes } from "../wire/handshake.ts";

/** A lane as whoever runs it knows it. */
export interface LaneEntry {
  /** Where it listens, URL by URL as the front does. */
  readonly urls: readonly string[];
  /** Of its engine; 0 while there is none. */
  readonly incarnation: bigint;
}

/** What an engine says of the lanes that it speaks for: to whoever connects in its welcome, and to all who have connected whenever that changes. */
export class LaneBoard {
  readonly #ports: { readonly listening: readonly Port[] };
  readonly #sessions: Iterable<Session>;
  #lanes: readonly LaneEntry[] = [];

  constructor(ports: { readonly listening: readonly Port[] }, sessions: Iterable<Session>) {
    this.#ports = ports;
    this.#sessions = sessions;
  }

  /** The lanes as a peer that has come to this port may reach them. */
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
      // Whoever knows no lanes answers `unimplemented`, and whoever is lost will be told in its next welcome.
      if (seen.length > 0) session.ask(builtin.lanes, packLanes(seen)).catch(() => {});
    }
  }
}
