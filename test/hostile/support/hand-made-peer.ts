import { expect } from "vitest";
import { openConnectingPort } from "../../../src/fabric/open-port.ts";
import { defaultLayout, type Port, type PortSink } from "../../../src/fabric/port.ts";
import { locate } from "../../../src/fabric/target.ts";

const owner = { onSent: () => {} };

/** A peer without an engine, which writes every byte by hand. */
export abstract class HandMadePeer implements Disposable {
  readonly port: Port;
  readonly #sink: PortSink = {
    onMessage: (port, offset, bytes) =>
      this.onMessage(Uint8Array.from(port.slab.subarray(offset, offset + bytes))),
    onMessageLost() {},
    onPutNotification() {},
    onPeerGone() {},
  };

  protected constructor(port: Port) {
    this.port = port;
  }

  protected abstract onMessage(message: Uint8Array): void;

  protected async sendTo(address: number, bytes: Uint8Array): Promise<void> {
    let slot = this.port.takeSlot();
    while (slot < 0) {
      await this.turn();
      slot = this.port.takeSlot();
    }
    this.port.slab.set(bytes, slot);
    this.port.send(address, slot, bytes.byteLength, owner);
  }

  /** One turn of the loop: both sides make progress. */
  async turn(): Promise<void> {
    await new Promise(setImmediate);
    this.port.progress(0, this.#sink);
  }

  async until(condition: () => boolean, what: string): Promise<void> {
    const untilMs = performance.now() + 20_000;
    while (!condition()) {
      if (performance.now() > untilMs) expect.fail(`no ${what} within 20 s`);
      await this.turn();
    }
  }

  [Symbol.dispose](): void {
    this.port.close();
  }
}

/** A port that reaches the engine at `url`, its address there, and the address for answers. */
export async function reach(url: string): Promise<{ port: Port; address: number; replyTo: Uint8Array }> {
  const target = await locate(url);
  const port = await openConnectingPort(target, defaultLayout);
  const { address, replyTo } = await port.route(target);
  return { port, address: port.admit(address), replyTo };
}
