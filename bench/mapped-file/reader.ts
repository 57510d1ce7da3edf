import { once } from "node:events";
import { connect, type NetConnectOpts } from "node:net";
import { Engine } from "cinnabar";
import { heartbeatMs } from "../bulk/contract.ts";
import type { Party } from "../suite/child.ts";
import { FileOwner, pieceBytes } from "./owner.ts";

/** A process that reads all of a file of another. */
export interface Reader extends Party {
  /** Reads the file once, and returns the milliseconds that it took. Rejects when bytes are missing. */
  read(bytes: number): Promise<number>;
}

const inFlight = 4;

/** `where`: the URL for Cinnabar, "tcp" or "unix" for node:net. */
export async function open(where: string, address: string): Promise<Reader> {
  return where.includes("://") ? withCinnabar(address) : withNet(JSON.parse(address));
}

/** Gets piece by piece, some at a time, each into memory of its own. */
async function withCinnabar(url: string): Promise<Reader> {
  const engine = await Engine.open({ heartbeatMs });
  const peer = await engine.connect(url, { timeoutMs: heartbeatMs });
  const file = await engine.borrow(await peer.client(FileOwner).share({}));
  const places = Array.from({ length: inFlight }, () => new Uint8Array(pieceBytes));
  return {
    async read(bytes) {
      const begunMs = performance.now();
      let next = 0;
      let got = 0;
      const lane = async (place: Uint8Array) => {
        for (let offset = next; offset < bytes; offset = next) {
          next += pieceBytes;
          const moved = await file.get(place, { offset });
          got += moved;
        }
      };
      await Promise.all(places.map(lane));
      if (got !== bytes) throw new Error(`${got} of ${bytes} bytes came`);
      return performance.now() - begunMs;
    },
    close: () => engine.close(),
  };
}

/** Reads the stream into one buffer, which is the fastest way that node:net has. */
async function withNet(where: NetConnectOpts): Promise<Reader> {
  const buffer = new Uint8Array(pieceBytes);
  return {
    async read(bytes) {
      const begunMs = performance.now();
      let got = 0;
      const callback = (read: number) => {
        got += read;
        return true;
      };
      const socket = connect({ ...where, onread: { buffer, callback } });
      await once(socket, "close");
      if (got !== bytes) throw new Error(`${got} of ${bytes} bytes came`);
      return performance.now() - begunMs;
    },
    async close() {},
  };
}
