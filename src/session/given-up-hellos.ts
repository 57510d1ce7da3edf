import type { Port } from "../fabric/port.ts";
import { decodeAt } from "../wire/codec.ts";
import { frameFault, frameFlag, frameHeaderBytes, frameKind } from "../wire/frame.ts";
import { parseReturnPath, type ReturnPath } from "../wire/handshake.ts";
import { messageHeaderBytes } from "../wire/message.ts";
import type { Session } from "./session.ts";

/** How many are kept; of those before, a welcome is a stray like any other. */
const mostKept = 256;

/**
 * Hellos that were given up before anything came. Whoever was busy may welcome them yet, and then has a session that nobody else knows of: such a welcome is known here, and tells
 * how to take leave of it. Each is known once, and nothing but a welcome is, so no two engines can go on answering each other.
 */
export class GivenUpHellos {
  /** By what the welcome must carry. The oldest come first. */
  readonly #hellos = new Map<string, { readonly port: Port; readonly address: Uint8Array }>();

  /** `address`: where the hello went. */
  add({ index, nonce, port }: Session, address: Uint8Array): void {
    this.#hellos.set(keyOf(index, nonce), { port, address });
    for (const [oldest] of this.#hellos) {
      if (this.#hellos.size <= mostKept) break;
      this.#hellos.delete(oldest);
    }
  }

  /**
   * The way to whoever welcomes one of them by this message, whose header has been checked; undefined when it is something else. A welcome that would have to be pulled is not answered: its
   * sender waits for that, and ends the session when it hears nothing.
   */
  welcomedBy(port: Port, offset: number, bytes: number): ReturnPath | undefined {
    const view = port.slabView;
    const key = keyOf(view.getUint32(offset + 8, true), view.getUint32(offset + 12, true));
    const hello = this.#hellos.get(key);
    if (hello?.port !== port) return undefined;
    const at = offset + messageHeaderBytes;
    if (frameFault(view, at, offset + bytes) !== "") return undefined;
    if (view.getUint8(at) !== frameKind.welcome || (view.getUint8(at + 1) & frameFlag.overflow) !== 0)
      return undefined;
    this.#hellos.delete(key);
    const start = at + frameHeaderBytes;
    try {
      const path = parseReturnPath(decodeAt(port.slab, start, start + view.getUint32(at + 8, true)));
      // A welcome says nothing of where it comes from.
      return typeof path === "string" ? undefined : { ...path, address: hello.address };
    } catch {
      return undefined;
    }
  }
}

const keyOf = (index: number, nonce: number): string => `${index} ${nonce}`;
