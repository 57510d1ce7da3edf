import { Engine } from "cinnabar";
import { NvmeHost } from "cinnabar-nvme";
import { type Measured, measureCallers } from "../contenders/client-party.ts";
import { loadContender } from "../contenders/index.ts";
import type { Party } from "../suite/child.ts";
import { type BlockSubject, blockBytes, diskBytes, nqn } from "./subjects.ts";

export type BlockOp = "read" | "write" | "echo";

/** The client of a subject, in a process of its own. */
export interface BlockClient extends Party {
  /** Blocks at random, with so many under way. */
  measure(op: BlockOp, inFlight: number, durationMs: number): Promise<Measured>;
}

/** The most that are under way. */
const queueDepth = 127;

export async function open({ key, device }: BlockSubject, id: string, address: string): Promise<BlockClient> {
  const content = Uint8Array.from({ length: blockBytes }, (_, index) => index * 167 + 31);
  if (device === "echo") {
    const connection = await (await loadContender(key, id)).connect(address);
    return {
      measure: (_, inFlight, durationMs) =>
        measureCallers(() => connection.bytes(content), inFlight, durationMs),
      close: () => connection.close(),
    };
  }
  const engine = key === "nvme-tcp" ? undefined : await Engine.open();
  const path = engine === undefined ? { host: "127.0.0.1", port: Number(address) } : { engine, url: address };
  const host = await NvmeHost.connect({ nqn, paths: [path], queueDepth });
  const [disk] = host.namespaces;
  if (disk === undefined) throw new Error("the target has no disk");
  // A buffer for each of those under way, since the device has it until the operation ends.
  const buffers = Array.from({ length: queueDepth + 1 }, () => Buffer.alloc(blockBytes));
  const offset = () => Math.floor((Math.random() * diskBytes) / blockBytes) * blockBytes;
  return {
    measure(op, inFlight, durationMs) {
      const free: Buffer[] = [...buffers];
      const read = async () => {
        const into = free.pop() as Buffer;
        await disk.read(offset(), into);
        free.push(into);
      };
      return measureCallers(op === "read" ? read : () => disk.write(offset(), content), inFlight, durationMs);
    },
    async close() {
      await host.close();
      await engine?.close();
    },
  };
}
