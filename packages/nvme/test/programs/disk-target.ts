import { Engine } from "cinnabar";
import { NvmeTarget, openFileDevice } from "cinnabar-nvme";
import { obey, settings, tell } from "../../../../test/processes/programs/commands.ts";

/** A file served as a disk, to hosts of NVMe/TCP at a port or of Cinnabar at a URL. */
interface Settings {
  readonly file: string;
  readonly bytes: number;
  readonly nqn: string;
  /** A port of loopback, or a URL. */
  readonly at: number | string;
}

const { file, bytes, nqn, at } = settings<Settings>();
const device = await openFileDevice(file, { bytes });
const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
const isPort = typeof at === "number";
const target = isPort ? await NvmeTarget.listen({ subsystems, port: at }) : NvmeTarget.open({ subsystems });
const engine = isPort ? undefined : await Engine.open({ listen: at, serve: [target.capsules] });
obey({
  async close() {
    await target.close();
    await engine?.close();
    await device.close();
  },
});
tell("serving", { at: engine === undefined ? target.address.port : engine.urls[0] });
