import { on, once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cpuUs } from "../../echo/usage.ts";
import { Busy } from "../busy.ts";
import { runLanes } from "../lanes.ts";
import { type Reading, readings } from "../net-readings.ts";
import type { Owner } from "../party.ts";
import { Slots } from "../slots.ts";

/**
 * Writes whole slots to a socket; each is acknowledged by one byte when all of it is there, so that a transfer means
 * the same as elsewhere. Ways: how the receiver reads, see net-readings.ts. It is the receiver that connects, since
 * only a socket that connects may bring its read buffer.
 */
export async function open(transport: string): Promise<Owner> {
  const server = createServer({ noDelay: true });
  const path = join(tmpdir(), `cinnabar-bench-bulk-${process.pid}.sock`);
  if (transport === "unix") server.listen(path);
  else server.listen(0, "127.0.0.1");
  await once(server, "listening");

  // A receiver may connect before this side is told to prepare: each connection is kept until then.
  const connections = on(server, "connection") as AsyncIterableIterator<[Socket]>;
  const links = new Map<Reading, Link>();
  let slots = new Slots(0);
  const busy = new Busy();

  return {
    address: async () => addressOf(server),

    async prepare(bytes, lanes) {
      slots = new Slots(bytes, lanes);
      slots.fill(1);
      for (const link of links.values()) link.socket.destroy();
      links.clear();
      while (links.size < readings.length) {
        const [socket] = (await connections.next()).value as [Socket];
        const [hello] = (await once(socket, "data")) as [Buffer];
        const reading = readings[hello[0] ?? -1];
        if (reading === undefined) throw new Error("a receiver said nothing that is known");
        links.set(reading, new Link(socket));
      }
      for (const link of links.values()) {
        for (let lane = 0; lane < slots.count; lane++) await link.send(slots.slot(lane));
      }
    },

    measure(way, inFlight, durationMs) {
      const link = links.get(way as Reading);
      if (link === undefined) throw new Error(`nobody reads by "${way}"`);
      return runLanes(inFlight, { durationMs }, (lane) => link.send(slots.slot(lane)));
    },

    compute: async (isBusy) => busy.set(isBusy),
    cpuUs: async () => cpuUs(),
    async close() {
      for (const link of links.values()) link.socket.destroy();
      server.close();
    },
  };
}

/** One connection, with what is under way on it. */
class Link {
  readonly socket: Socket;
  readonly #unacknowledged: { resolve(): void; reject(error: Error): void }[] = [];

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (acknowledgements) => {
      for (const acknowledgement of acknowledgements) {
        const sent = this.#unacknowledged.shift();
        if (acknowledgement === 1) sent?.resolve();
        else sent?.reject(new Error("the receiver got something else than what was sent"));
      }
    });
    const lost = () => {
      for (const { reject } of this.#unacknowledged.splice(0)) reject(new Error("the connection is gone"));
    };
    socket.on("error", lost);
    socket.on("close", lost);
  }

  send(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#unacknowledged.push({ resolve, reject });
      this.socket.write(bytes);
    });
  }
}

function addressOf(server: Server): string {
  const address = server.address();
  if (address === null) return "";
  return typeof address === "string" ? address : String(address.port);
}
