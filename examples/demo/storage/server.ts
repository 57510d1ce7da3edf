// The serving process: one file as a disk, over two transports of Cinnabar, NVMe/TCP and NBD at the same time.
import { rmSync } from "node:fs";
import { Engine } from "cinnabar";
import { NvmeTarget, openFileDevice, serveNbd } from "cinnabar-nvme";
import { aborted, describe, stopSignal } from "../lifetime.ts";
import { type Assignment, type Doors, nbdExport, nqn } from "./contract.ts";

const stop = stopSignal();
try {
  await serve(JSON.parse(process.argv[2] ?? ""));
} catch (error) {
  console.error(`server: ${describe(error)}`);
  process.exitCode = 1;
}

async function serve({ file, bytes, doors }: Assignment): Promise<void> {
  await using device = await openFileDevice(file, { bytes });
  await using target = await NvmeTarget.listen({
    port: doors.nvmePort,
    subsystems: [{ nqn, namespaces: [device], hosts: "any" }],
  });
  await using engine = await Engine.open({ listen: [doors.shm, doors.tcp], serve: [target.capsules] });
  // One that was killed has left its socket.
  rmSync(doors.nbd, { force: true });
  await using _nbd = await serveNbd(device, { path: doors.nbd, name: nbdExport });
  const [shm = "", tcp = ""] = engine.urls;
  process.send?.({ ...doors, shm, tcp, nvmePort: target.address.port } satisfies Doors);
  await aborted(stop);
}
