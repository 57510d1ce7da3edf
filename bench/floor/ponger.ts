import { setImmediate as turn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { openConnectingPort, openListeningPort } from "../../src/fabric/open-port.ts";
import type { Port, PortSink, SendListener } from "../../src/fabric/port.ts";
import { defaultLayout } from "../../src/fabric/port.ts";
import { Progress } from "../../src/fabric/progress.ts";
import { locate } from "../../src/fabric/target.ts";
import type { Party } from "../suite/child.ts";

/** As long as libfabric's tool is told to send. */
export const messageBytes = 64;

/**
 * Who asks the port for what has come: `driven` by the engine's own driver, one turn of the event loop for each look,
 * as it is under calls; `tight`, a plain loop around the native call, as C would.
 */
export type Way = "driven" | "tight";

/** One end of a ping-pong on a bare port: no engine, no session, no frames. */
export interface Ponger extends Party {
  /** Where it can be connected to. */
  url(): Promise<string>;
  /** libfabric's name for it. */
  provider(): Promise<string>;
  /** The domain of libfabric's that the port is on, such as "rxe0" or "lo". */
  device(): Promise<string>;
  /** How many milliseconds so many round trips take that start from here. */
  roundTrips(count: number, way: Way): Promise<number>;
}

// A message's first words: what it is, and a number.
const kinds = { hello: 1, ping: 2, pong: 3, beginTight: 4 } as const;
const spinUs = 10;
/** A tight loop holds the thread; one whose other end is gone must let it go. */
const tightLimitMs = 10_000;

const noOwner: SendListener = { onSent: () => {} };

class Pong implements PortSink {
  readonly port: Port;
  readonly #progress: Progress;
  #address = -1;
  /** How many pings are still to be answered, or sent, before `#ended` is told. */
  #left = 0;
  #ended: () => void = () => {};

  constructor(port: Port) {
    this.port = port;
    this.#progress = new Progress();
    this.#progress.sink = this;
    this.#progress.add(port);
    port.setRef(true);
  }

  async connect(url: string): Promise<void> {
    const { address, replyTo } = await this.port.route(await locate(url));
    this.#address = this.port.admit(address);
    const slot = this.port.takeSlot();
    this.port.slab.set(replyTo, slot + 8);
    const welcomed = this.#await(1);
    this.#post(slot, kinds.hello, replyTo.byteLength, 8 + replyTo.byteLength);
    await welcomed;
  }

  /** Milliseconds for so many round trips. */
  async roundTrips(count: number, way: Way): Promise<number> {
    if (way === "tight") {
      const ready = this.#await(1);
      this.#send(kinds.beginTight, count);
      await ready;
    }
    const ended = this.#await(count);
    const begun = performance.now();
    this.#send(kinds.ping, count);
    if (way === "tight") {
      this.#loop();
      return performance.now() - begun;
    }
    this.#progress.wake();
    await ended;
    return performance.now() - begun;
  }

  onMessage(_port: Port, offset: number): void {
    const view = this.port.slabView;
    const number = view.getUint32(offset + 4, true);
    switch (view.getUint32(offset, true)) {
      case kinds.ping:
        this.#send(kinds.pong, number);
        this.#left--;
        break;
      case kinds.pong:
        if (--this.#left > 0) this.#send(kinds.ping, number);
        else this.#ended();
        break;
      case kinds.hello:
        this.#address = this.port.admit(this.port.slab.subarray(offset + 8, offset + 8 + number));
        this.#left = 1;
        this.#send(kinds.pong, 0);
        break;
      case kinds.beginTight:
        this.#left = number;
        this.#send(kinds.pong, 0);
        void turn().then(() => this.#loop());
        break;
    }
  }

  onMessageLost(): void {
    throw new Error("a message was lost");
  }

  onPutNotification(): void {}

  onPeerGone(port: Port, address: number): void {
    port.forget(address);
  }

  close(): void {
    this.#progress.close();
    this.port.close();
  }

  #await(count: number): Promise<void> {
    this.#left = count;
    return new Promise((resolve) => {
      this.#ended = resolve;
    });
  }

  #loop(): void {
    // The driver must know that the port does not sleep: a look takes the ring of the doorbell that would wake it.
    this.#progress.wake();
    const limit = performance.now() + tightLimitMs;
    for (let i = 1; this.#left > 0; i++) {
      this.port.progress(spinUs, this);
      if ((i & 0xff) === 0 && performance.now() > limit) throw new Error("the other end has gone silent");
    }
  }

  #send(kind: number, number: number): void {
    this.#post(this.port.takeSlot(), kind, number, messageBytes);
  }

  #post(slot: number, kind: number, number: number, bytes: number): void {
    this.port.slabView.setUint32(slot, kind, true);
    this.port.slabView.setUint32(slot + 4, number, true);
    this.port.send(this.#address, slot, bytes, noOwner);
  }
}

/** One end, which listens at the URL or connects to it. */
export async function open(role: "listen" | "connect", url: string): Promise<Ponger> {
  // The sources, compiled beside this program, look for the addon relative to themselves.
  process.env.CINNABAR_ADDON ??= fileURLToPath(
    new URL("../../../native/build/Release/cinnabar.node", import.meta.url),
  );
  const isListening = role === "listen";
  const port = isListening
    ? await openListeningPort(url, defaultLayout)
    : await openConnectingPort(await locate(url), defaultLayout);
  const pong = new Pong(port);
  if (!isListening) await pong.connect(url);
  return {
    url: async () => port.url,
    provider: async () => port.provider,
    device: async () => port.describe().granted?.device ?? "",
    roundTrips: (count, way) => pong.roundTrips(count, way),
    close: async () => pong.close(),
  };
}
