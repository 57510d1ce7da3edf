import { Engine } from "cinnabar";
import { memoryDevice, NvmeTarget, nullDevice, openFileDevice, serveNbd } from "cinnabar-nvme";
import { loadContender } from "../contenders/index.ts";
import type { Party } from "../suite/child.ts";
import { targetHosts } from "./linux.ts";
import { type BlockSubject, diskBytes, nqn } from "./subjects.ts";

/** The server of a subject, in a process of its own. */
export interface BlockServer extends Party {
  address(): Promise<string>;
}

/** `file` is where the disk of `file` lies. */
export async function open({ key, device }: BlockSubject, id: string, file: string): Promise<BlockServer> {
  if (device === "echo") {
    const serving = await (await loadContender(key, id)).serve?.();
    if (serving === undefined) throw new Error(`${key} has no server of its own`);
    return { address: async () => serving.address, close: () => serving.close() };
  }
  const bytes = diskBytes;
  const disk =
    device === "file"
      ? await openFileDevice(file, { bytes })
      : device === "memory"
        ? memoryDevice({ bytes })
        : nullDevice({ bytes });
  if (key === "nbd") {
    const server = await serveNbd(disk);
    return {
      address: async () => server.uri,
      async close() {
        await server.close();
        await disk.close();
      },
    };
  }
  const subsystems = [{ nqn, namespaces: [disk], hosts: "any" as const }];
  if (key === "nvme-tcp") {
    const target = await NvmeTarget.listen({ subsystems, port: 0 });
    return {
      address: async () => String(target.address.port),
      async close() {
        await target.close();
        await disk.close();
      },
    };
  }
  const target = NvmeTarget.open({ subsystems });
  if (key === "nvme-rdma") {
    const { port } = await target.listenRdma({ host: targetHosts.rdma, port: 0 });
    return {
      address: async () => String(port),
      async close() {
        await target.close();
        await disk.close();
      },
    };
  }
  const listen = key === "shm" ? `shm://cinnabar-bench-block-${id}` : "tcp://127.0.0.1:0";
  const engine = await Engine.open({ listen, serve: [target.capsules] });
  return {
    address: async () => engine.urls[0] ?? "",
    async close() {
      await target.close();
      await engine.close();
      await disk.close();
    },
  };
}
