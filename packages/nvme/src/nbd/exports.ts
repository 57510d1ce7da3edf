import type { BlockDevice } from "../device/block-device.ts";
import { maxNameBytes } from "./protocol.ts";

/** So many disks a server has at most. */
const maxExports = 256;
/** The answer to LIST has the names of all exports. This bounds what a client that does not read it costs. */
const maxNamesBytes = 65_536;

/** An export: a disk with the name that clients choose it by. */
export interface Export {
  readonly name: string;
  readonly device: BlockDevice;
}

/** Whether UTF-8 keeps a text as it is. */
export const isUtf8Text = (text: string): boolean => Buffer.from(text).toString() === text;

/** The disks of a server, by their names. */
export class Exports {
  readonly all: readonly Export[];
  readonly #devices: ReadonlyMap<string, BlockDevice>;

  /** @throws TypeError or RangeError for names and numbers that do not fit */
  constructor(where: string, devices: ReadonlyMap<string, BlockDevice>) {
    if (devices.size === 0 || devices.size > maxExports)
      throw new RangeError(`${where}: give 1 to ${maxExports} disks, not ${devices.size}`);
    this.#devices = devices;
    this.all = [...devices].map(([name, device]) => ({ name, device }));
    let namesBytes = 0;
    for (const { name } of this.all) {
      const bytes = typeof name === "string" ? Buffer.byteLength(name) : 0;
      // Clients cannot ask for half of a surrogate pair: it has no form in UTF-8.
      if (bytes === 0 || bytes > maxNameBytes || !isUtf8Text(name))
        throw new TypeError(
          `${where}: the name of a disk must be a well-formed string of 1 to ${maxNameBytes} bytes`,
        );
      namesBytes += bytes;
    }
    if (namesBytes > maxNamesBytes)
      throw new RangeError(
        `${where}: the names of all disks may have ${maxNamesBytes} bytes, they have ${namesBytes}`,
      );
  }

  /** The export that a client asks for. The empty name means the only one. */
  find(name: string): Export | undefined {
    if (name === "" && this.all.length === 1) return this.all[0];
    const device = this.#devices.get(name);
    return device && { name, device };
  }

  /** Why there is no export of a name. */
  lackOf(name: string): string {
    if (name === "") return "this server has several exports: choose one by its name, as LIST shows them";
    return "this server has no export of that name: LIST shows the names";
  }
}
