import { realTimers } from "../../base/time/real-timers.ts";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { Aead, sealingLibrary } from "./aead.ts";
import { ivBytes, keyBytes, type SuiteName, suiteNames, tagBytes } from "./suites.ts";

/** The library that seals sessions on this machine, and its speed. */
export interface SealingReport {
  /** The file of the library: mostly the node binary. "node:crypto" where the addon is missing. */
  readonly path: string;
  /** "OpenSSL 3.5.8 …". */
  readonly version: string;
  /** The places where it was looked for; `reason` is empty for the one in use. */
  readonly tried: readonly { readonly path: string; readonly reason: string }[];
  /** The ciphers, and how many bytes one thread seals in a second; 0 where the library does not have it. */
  readonly suites: readonly { readonly name: SuiteName; readonly bytesPerSecond: number }[];
}

/** The length of a piece of bulk data. */
const measuredBytes = 256 * 1024;
const measuredMs = 10;

/**
 * Describes how sessions are sealed on this machine, and measures how fast. Takes some 20 ms of the thread; never
 * throws. `cinnabar info` prints it.
 *
 * @example
 * const { version, suites } = describeSealing();
 * console.log(version, suites.map(({ name, bytesPerSecond }) => `${name}: ${bytesPerSecond / 1e9} GB/s`));
 */
export function describeSealing(): SealingReport {
  const { path, version, tried } = sealingLibrary().libcrypto();
  const suites = suiteNames.map((name) => ({ name, bytesPerSecond: measured(name) }));
  return { path, version, tried: addonIfThere()?.libcrypto().tried ?? tried, suites };
}

function measured(suite: SuiteName): number {
  let aead: Aead;
  try {
    aead = Aead.create(suite, "seal", new Uint8Array(keyBytes), new Uint8Array(ivBytes));
  } catch {
    return 0;
  }
  const memory = new Uint8Array(measuredBytes);
  const tag = new Uint8Array(tagBytes);
  const none = new Uint8Array(0);
  let best = Number.POSITIVE_INFINITY;
  const untilMs = realTimers.now() + measuredMs;
  // The best one: other load of the machine is no property of the library.
  for (let number = 1; number < 3 || realTimers.now() < untilMs; number++) {
    const startMs = realTimers.now();
    aead.sealPiece(number, none, memory, memory, tag);
    best = Math.min(best, realTimers.now() - startMs);
  }
  aead.close();
  return Math.round((measuredBytes / best) * 1000);
}
