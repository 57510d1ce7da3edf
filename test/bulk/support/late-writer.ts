import {
  bulk,
  type Implementation,
  implement,
  type RemoteRegion,
  type RpcError,
  service,
  unary,
} from "cinnabar";
import { z } from "zod";
import type { Extent, Port, PortSink } from "../../../src/fabric/port.ts";
import type { RemoteGrant } from "../../../src/memory/remote-region.ts";

/** The service of somebody who goes on to write what it was lent after its right has ended. */
export const Late = service("late.v1", {
  /** Puts into the region, again and again, until the call ends. */
  put: unary({ input: z.object({ into: bulk("write") }) }),
});

/** What came of the writes that were tried too late. */
export interface LateReport {
  /** How many handles and keys were tried, each once in both ways. */
  readonly tried: number;
  /**
   * How many puts through a handle resolved, and transfers with a stale key that ended without an error. Both must be
   * 0.
   */
  readonly handlesServed: number;
  readonly keysServed: number;
  /** The codes of the former and libfabric's numbers for the latter. */
  readonly codes: Readonly<Record<string, number>>;
  /** Transfers with keys that were being taken back meanwhile: allowed before that is done. */
  readonly racing: number;
}

interface Kept {
  readonly into: RemoteRegion<"write">;
  readonly put: () => Promise<number>;
}

const sink: PortSink = { onMessage() {}, onMessageLost() {}, onPutNotification() {}, onPeerGone() {} };
/** What the late writes write. */
export const lateByte = 0xee;

/** Keeps every handle and key it has been given and writes with them when it has no right to. */
export class LateWriter {
  readonly implementation: Implementation;
  readonly #raw: Port;
  readonly #address: number;
  readonly #source: Uint8Array;
  readonly #extent: Pick<Extent, "local" | "offset">;
  #kept: Kept[] = [];
  #racing = 0;
  #racingWanted = false;

  /** `raw`: a port of its own, without an engine that would know better; `address`: of the caller, on that. */
  constructor(raw: Port, address: number, bytes: number) {
    this.#raw = raw;
    this.#address = address;
    this.#source = new Uint8Array(bytes).fill(lateByte);
    this.#extent = { local: raw.register(this.#source.buffer as ArrayBuffer, 0, bytes, 0), offset: 0 };
    this.implementation = implement(Late, {
      put: async ({ into: lent }, call) => {
        const into = lent as RemoteRegion<"write">;
        this.#kept.push({ into, put: () => call.put(this.#source.subarray(0, into.byteLength), into) });
        while (!call.signal.aborted) await call.put(this.#source.subarray(0, into.byteLength), into);
      },
    });
  }

  /**
   * Writes with every key it has, all the time: also while the keys are being taken back. Only where a port sees to it
   * that a copy under way is waited for.
   */
  race(): void {
    if (!this.#raw.revokesKeys || this.#racingWanted) return;
    this.#racingWanted = true;
    void this.#race();
  }

  async #race(): Promise<void> {
    while (this.#racingWanted) {
      for (const { into } of [...this.#kept]) {
        if (!this.#racingWanted) break;
        this.#racing++;
        await this.#rawPut(into);
      }
      await new Promise(setImmediate);
    }
  }

  /** Everything it has been given has been taken back: tries all of it, once more. */
  async late(): Promise<LateReport> {
    this.#racingWanted = false;
    const kept = this.#kept;
    this.#kept = [];
    const codes: Record<string, number> = {};
    const count = (code: string | number) => {
      codes[code] = (codes[code] ?? 0) + 1;
    };
    let handlesServed = 0;
    let keysServed = 0;
    for (const { into, put } of kept) {
      await put().then(
        () => handlesServed++,
        (error: RpcError) => count(error.code),
      );
      const status = await this.#rawPut(into);
      if (status === 0) keysServed++;
      else count(status);
    }
    const racing = this.#racing;
    this.#racing = 0;
    return { tried: kept.length, handlesServed, keysServed, codes, racing };
  }

  async #rawPut(into: RemoteRegion): Promise<number> {
    const { segments } = into as unknown as RemoteGrant;
    const extents = segments.map(({ key, address, bytes }) => ({
      ...this.#extent,
      bytes,
      key,
      remote: address,
    }));
    let ended: number | undefined;
    this.#raw.transfer("write", this.#address, extents, {
      onTransferred(status) {
        ended = status;
      },
    });
    while (ended === undefined) {
      this.#raw.progress(0, sink);
      if (ended === undefined) await new Promise(setImmediate);
    }
    return ended;
  }

  close(): void {
    this.#racingWanted = false;
    this.#raw.close();
  }
}
