import { once } from "node:events";
import { connect, type NetConnectOpts, type Socket } from "node:net";
import { cpuUs } from "../../echo/usage.ts";
import { type Reading, readings } from "../net-readings.ts";
import type { BulkParty } from "../party.ts";
import { holds, Slots } from "../slots.ts";

/** Big enough that system calls do not matter, small enough to stay in a processor's cache. */
const countBufferBytes = 256 << 10;

/** Receives each complete transfer, with its bytes where the way of reading has them. */
type Listener = (whole?: Uint8Array) => void;

/** Reads transfers from a sender in every way of net-readings.ts, each on a connection of its own. */
export async function open(transport: string, address: string): Promise<BulkParty> {
  const where = transport === "unix" ? { path: address } : { port: Number(address), host: "127.0.0.1" };
  let sockets: Socket[] = [];
  const destroy = () => {
    for (const socket of sockets) socket.destroy();
    sockets = [];
  };

  return {
    async prepare(bytes, lanes) {
      destroy();
      for (const [index, reading] of readings.entries()) {
        const slots = new Slots(bytes, lanes);
        let received = 0;
        const socket: Socket = readers[reading](where, slots, (whole) => {
          // The first of each slot is looked at, the others are measured.
          const isRight = received >= slots.count || whole === undefined || holds(whole, 1, received);
          received++;
          socket.write(Uint8Array.of(isRight ? 1 : 0));
        });
        socket.on("error", () => {}); // the sender may be the first to end
        sockets.push(socket);
        await once(socket, "connect");
        socket.setNoDelay(true);
        socket.write(Uint8Array.of(index));
      }
    },
    address: async () => "",
    cpuUs: async () => cpuUs(),
    async close() {
      destroy();
    },
  };
}

const readers: Record<Reading, (where: NetConnectOpts, slots: Slots, onWhole: Listener) => Socket> = {
  "in place"(where, slots, onWhole) {
    let lane = 0;
    let filled = 0;
    return connect({
      ...where,
      onread: {
        buffer: () => slots.slot(lane).subarray(filled),
        callback(bytes) {
          filled += bytes;
          if (filled < slots.bytes) return true;
          onWhole(slots.slot(lane));
          lane = (lane + 1) % slots.count;
          filled = 0;
          return true;
        },
      },
    });
  },

  concat(where, slots, onWhole) {
    let chunks: Buffer[] = [];
    let missing = slots.bytes;
    const socket = connect(where);
    socket.on("data", (chunk: Buffer) => {
      let rest = chunk;
      while (rest.byteLength >= missing) {
        chunks.push(rest.subarray(0, missing));
        rest = rest.subarray(missing);
        onWhole(Buffer.concat(chunks, slots.bytes));
        chunks = [];
        missing = slots.bytes;
      }
      if (rest.byteLength > 0) chunks.push(rest);
      missing -= rest.byteLength;
    });
    return socket;
  },

  count(where, slots, onWhole) {
    let bytes = 0;
    return connect({
      ...where,
      onread: {
        buffer: new Uint8Array(countBufferBytes),
        callback(read) {
          for (bytes += read; bytes >= slots.bytes; bytes -= slots.bytes) onWhole();
          return true;
        },
      },
    });
  },
};
