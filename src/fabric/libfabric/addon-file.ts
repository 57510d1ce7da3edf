import { existsSync } from "node:fs";
import type { Addon } from "./addon.ts";

/** Every function of the addon. A file of another build lacks some, and is found before a call fails. */
const functions: Readonly<Record<keyof Addon, true>> = {
  load: true,
  providers: true,
  domains: true,
  patches: true,
  open: true,
  close: true,
  admit: true,
  addressOf: true,
  processOf: true,
  vouch: true,
  unvouch: true,
  absences: true,
  forget: true,
  send: true,
  register: true,
  deregister: true,
  read: true,
  write: true,
  progress: true,
  arm: true,
  disarm: true,
  setRef: true,
  askRdma: true,
  listenQueuePairs: true,
  closeQueuePairs: true,
  registerForQueuePairs: true,
  deregisterForQueuePairs: true,
  openQueuePair: true,
  acceptQueuePair: true,
  closeQueuePair: true,
  postToQueuePair: true,
  takeQueuePairEvents: true,
  connections: true,
  gauge: true,
  crc32c: true,
  allocate: true,
  release: true,
  allocatedBytes: true,
  watchLostPages: true,
  mapFile: true,
  showMapped: true,
  isDamaged: true,
  flushMapped: true,
  zeroFile: true,
  findData: true,
  lockFile: true,
  deviceBytes: true,
  libcrypto: true,
  openAead: true,
  closeAead: true,
  aeads: true,
  sealMessage: true,
  openMessage: true,
  sealPiece: true,
  openPiece: true,
};

/** Why a file that was loaded is not the addon of this package; "" if it is. */
export function addonFault(loaded: object): string {
  const missing = Object.keys(functions).filter((name) => !(name in loaded));
  if (missing.length === 0) return "";
  return missing.length === Object.keys(functions).length
    ? "it is not Cinnabar's addon"
    : `the addon is older than the package (it has no ${missing[0]}): run npm run build:native`;
}

/** Why a file cannot even be tried; "" if it can. */
export function fileFault(path: string): string {
  if (!path.startsWith("/")) return "";
  // Node's types of 20 do not have it.
  const { permission } = process as { permission?: { has(scope: string, path: string): boolean } };
  if (permission !== undefined && !permission.has("fs.read", path))
    return "Node's permission model forbids to read it; start the process with --allow-fs-read";
  return existsSync(path) ? "" : "no such file";
}

/** What an error of `require` says of the file, in one line. */
export function loadFault(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === "ERR_DLOPEN_DISABLED")
    return "permission" in process && process.permission !== undefined
      ? "Node's permission model forbids addons; start the process with --allow-addons"
      : "Node forbids addons; start the process without --no-addons";
  return message.split("\n", 1)[0] as string;
}
