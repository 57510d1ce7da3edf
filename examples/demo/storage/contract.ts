/** Where a disk is served. */
export interface Doors {
  /** URLs of Cinnabar. */
  readonly shm: string;
  readonly tcp: string;
  /** The port of NVMe/TCP, on loopback. */
  readonly nvmePort: number;
  /** The path of NBD's Unix socket. */
  readonly nbd: string;
}

/** What a server of a disk is to do: `tcp` may end in port 0, and `nvmePort` may be 0. */
export interface Assignment {
  readonly file: string;
  readonly bytes: number;
  readonly doors: Doors;
}

export const nqn = "nqn.2026-11.com.example:demo";
export const nbdExport = "disk";
