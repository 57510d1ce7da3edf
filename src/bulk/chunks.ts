import type { Port, RegisteredMemory } from "../fabric/port.ts";

/** One run of bytes between local registered memory and remote memory. */
export interface Run {
  readonly op: "read" | "write";
  readonly port: Port;
  readonly address: number;
  readonly local: RegisteredMemory;
  readonly localOffset: number;
  readonly bytes: number;
  readonly key: bigint;
  readonly remote: bigint;
}

/** How a run ended: 0 or the first error's libfabric number, and how many bytes surely moved. */
export interface RunResult {
  readonly status: number;
  readonly bytes: number;
}

/** Short enough that one chunk does not hold up small messages, long enough that its fixed cost vanishes. */
const chunkBytes = 1024 * 1024;
const chunksInFlight = 4;

/**
 * Moves a run in chunks with a few in flight. Settles only when no chunk is under way any more, whatever happened: until then the provider may
 * touch the memory. `stop` is asked before each chunk; a stopped run has status 0 and fewer bytes.
 */
export async function moveRun(run: Run, stop: () => boolean): Promise<RunResult> {
  const step = Math.min(chunkBytes, run.port.maxTransferBytes);
  let offset = 0;
  let moved = 0;
  let status = 0;
  const lane = async (): Promise<void> => {
    while (offset < run.bytes && status === 0 && !stop()) {
      const at = offset;
      const bytes = Math.min(step, run.bytes - at);
      offset += bytes;
      const ended = await new Promise<number>((settle) => {
        const extent = {
          local: run.local,
          offset: run.localOffset + at,
          bytes,
          key: run.key,
          remote: run.remote + BigInt(at),
        };
        run.port.transfer(run.op, run.address, [extent], { onTransferred: settle });
      });
      if (ended === 0) moved += bytes;
      else status ||= ended;
    }
  };
  const lanes = Math.min(chunksInFlight, Math.ceil(run.bytes / step));
  await Promise.all(Array.from({ length: lanes }, lane));
  return { status, bytes: moved };
}
