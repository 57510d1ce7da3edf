import { Engine } from "cinnabar";
import type { Party } from "../suite/child.ts";
import { Stall } from "./contract.ts";

/** What moved while the owner's thread computed, or as long while it was free. */
export interface Moved {
  /** Into the owner's memory, as it says itself when it computes. */
  readonly putBytes: number;
  /** Out of it; when it computes, only what it had just written. */
  readonly gotBytes: number;
  /** How often the owner has been taken for lost. */
  readonly losses: number;
}

export interface Mover extends Party {
  measure(forMs: number, stalls: boolean): Promise<Moved>;
}

const heartbeatMs = 500;

/** Writes and reads the owner's memory, one transfer after the other each way. */
export async function open(url: string, bytes: number): Promise<Mover> {
  const engine = await Engine.open({ heartbeatMs });
  const peer = await engine.connect(url);
  const client = peer.client(Stall);
  let losses = 0;
  peer.on("lost", () => losses++);
  const shared = await client.share({ bytes });
  const written = await engine.borrow(shared.written);
  const read = await engine.borrow(shared.read);
  const source = new Int32Array(bytes / 4);
  const target = new Int32Array(bytes / 4);
  let round = 0;

  return {
    async measure(forMs, stalls) {
      let over = false;
      let gets = 0;
      const counts = new Set<number>();
      const before = round;
      const free = () => new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), forMs));
      const ended = (stalls ? client.stall({ ms: forMs }) : free()).finally(() => {
        over = true;
      });
      const writing = async () => {
        while (!over) {
          source[source.length - 1] = ++round;
          await written.put(source);
        }
      };
      const reading = async () => {
        while (!over) {
          await read.get(target);
          gets++;
          if (target[0] !== 0) counts.add(target[0] as number);
        }
      };
      const [told] = await Promise.all([ended, writing(), reading()]);
      return {
        putBytes: (told === undefined ? round - before : told.last - told.first) * bytes,
        gotBytes: (told === undefined ? gets : counts.size) * bytes,
        losses,
      };
    },
    close: () => engine.close(),
  };
}
