import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { realClock } from "../../base/time/clock.ts";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import { IncomingCall } from "../../call/incoming-call.ts";
import { MemPort } from "../../fabric/mem-port.ts";
import type { PortSink } from "../../fabric/port.ts";
import type { RegionCore } from "../../memory/region-core.ts";
import { builtin } from "../../wire/builtin.ts";
import type { ServedMethod } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import type { PieceCiphers } from "../control/sealed-bulk.ts";
import { PieceMover } from "./mover.ts";
import { getPieceMethod, PieceOwner, putPieceMethod, releasePiecesMethod } from "./owner.ts";

/** Ciphers of Node, for one key in both directions. Only tests may use one key in this way. */
export function testCiphers(key: Uint8Array = randomBytes(32)): PieceCiphers {
  let counter = 0;
  const nonce = (n: number) => {
    const iv = Buffer.alloc(12);
    iv.writeBigUInt64BE(BigInt(n), 4);
    return iv;
  };
  return {
    sealer: {
      seal(source, target, context) {
        const cipher = createCipheriv("aes-256-gcm", key, nonce(++counter)).setAAD(context);
        target.set(cipher.update(source));
        cipher.final();
        return { counter, tag: Uint8Array.from(cipher.getAuthTag()) };
      },
    },
    opener: {
      open(n, tag, source, target, context) {
        const decipher = createDecipheriv("aes-256-gcm", key, nonce(n)).setAAD(context).setAuthTag(tag);
        const plain = decipher.update(source);
        try {
          decipher.final();
        } catch {
          target.fill(0);
          return false;
        }
        target.set(plain);
        return true;
      },
    },
  };
}

const methods: Readonly<Record<number, ServedMethod>> = {
  [builtin.getPiece]: getPieceMethod,
  [builtin.putPiece]: putPieceMethod,
  [builtin.releasePieces]: releasePiecesMethod,
};

/** A registration at a port: its buffer, and the rights of peers. */
interface Registered {
  readonly memory: ArrayBufferLike;
  readonly access: number;
}

/**
 * The two sides of a session with sealed bulk, over two mem ports; requests take a turn.
 */
export class SealedPair {
  readonly owner = new MemPort({ scheme: "mem", host: "", port: 0, name: "" }, layout);
  readonly mover = new MemPort({ scheme: "mem", host: "", port: 0, name: "" }, layout);
  readonly registered: Registered[] = [];
  /** The grants of the owner, by key: `check` of a session's grants. */
  readonly grants = new Map<
    bigint,
    { readonly region: Pick<RegionCore, "segments">; readonly may: string }
  >();
  /** Requests as they were sent. */
  readonly asked: { readonly method: number; readonly input: readonly unknown[] }[] = [];
  /** The same at the owner. */
  readonly served: IncomingCall[] = [];
  /** Changes an answer on its way. */
  onAnswer: (method: number, value: unknown) => unknown = (_method, value) => value;
  /** Called before a request is served. */
  onRequest: (method: number, input: readonly unknown[]) => unknown = (_method, input) => input;
  /** The owner's account of the peer. */
  readonly ownerAccount = {};
  /** The mover's account of the peer. */
  readonly moverAccount = {};
  /** The owner's clock: for pieces that its peer does not release. */
  readonly ownerClock = new FakeClock();
  readonly sessionMover: PieceMover;
  readonly #sealedOwner: PieceOwner;
  readonly #ownerLink: PeerLink;
  #pumps = true;

  /** `memoryBytes`: the memory budget of both engines. */
  constructor(ciphers = testCiphers(), memoryBytes = Number.POSITIVE_INFINITY) {
    const services = { limits: { memoryBytes } };
    for (const port of [this.owner, this.mover]) {
      const register = port.register.bind(port);
      port.register = (memory, byteOffset, byteLength, access) => {
        this.registered.push({ memory, access });
        return register(memory, byteOffset, byteLength, access);
      };
    }
    const owner = () => this.#sealedOwner;
    this.#ownerLink = {
      port: this.owner,
      address: this.owner.admit(rawOf(this.mover)),
      peerName: "the mover",
      account: this.ownerAccount,
      services,
      grants: { check: (...asked: Parameters<SealedPair["check"]>) => this.check(...asked) },
      get sealedOwner() {
        return owner();
      },
    } as unknown as PeerLink;
    this.#sealedOwner = new PieceOwner(this.#ownerLink, ciphers, this.ownerClock);
    const moverLink = {
      port: this.mover,
      address: this.mover.admit(rawOf(this.owner)),
      peerName: "the owner",
      account: this.moverAccount,
      services,
      clock: realClock,
      request: (method: number, input: readonly unknown[]) => this.#request(method, input),
    } as unknown as PeerLink;
    this.sessionMover = new PieceMover(moverLink, ciphers);
    this.#pump();
  }

  check(
    key: bigint,
    needed: string | undefined,
    offset: number,
    bytes: number,
  ): Pick<RegionCore, "segments"> {
    const grant = this.grants.get(key);
    if (grant === undefined) throw new RpcError({ code: "not_found", message: "no grant", origin: "remote" });
    if (needed !== undefined && !grant.may.includes(needed))
      throw new RpcError({ code: "permission_denied", message: `not "${needed}"`, origin: "remote" });
    const held = grant.region.segments.reduce((sum, { byteLength }) => sum + byteLength, 0);
    if (offset + bytes > held)
      throw new RpcError({ code: "out_of_range", message: "beyond", origin: "remote" });
    return grant.region;
  }

  grant(key: bigint, may: string, ...segments: Uint8Array[]): void {
    this.grants.set(key, { region: { segments }, may });
  }

  /** Asks the owner by hand. Resolves to the value, or to the code of the error. */
  ask(method: number, input: unknown): Promise<unknown> {
    return this.#request(method, input as readonly unknown[]).catch((error: RpcError) => error.code);
  }

  /** Moves bytes. Returns how many are in place at the end, and the error that stopped the rest. */
  move(
    op: "get" | "put",
    parts: readonly {
      readonly key: bigint;
      readonly offset: number;
      readonly local: readonly Uint8Array[];
    }[],
    {
      chunkBytes,
      stopped = () => false,
    }: { readonly chunkBytes?: number; readonly stopped?: () => boolean } = {},
  ): Promise<{ readonly moved: number; readonly code: string | undefined }> {
    let moved = 0;
    return new Promise((resolve) => {
      this.sessionMover.start({
        op,
        parts,
        chunkBytes,
        deadlineMs: realClock.now() + 60_000,
        listener: {
          stopped,
          onMoved: (bytes) => {
            moved += bytes;
          },
          onEnded: (error) => resolve({ moved, code: error === 0 ? undefined : error.code }),
        },
      });
    });
  }

  async #request(method: number, input: readonly unknown[]): Promise<unknown> {
    this.asked.push({ method, input });
    const sent = this.onRequest(method, input);
    await new Promise(setImmediate);
    return new Promise((resolve, reject) => {
      const answer = (_call: IncomingCall, { value, error }: { value?: unknown; error?: RpcError }) => {
        if (error === undefined) resolve(this.onAnswer(method, value));
        else reject(error);
      };
      const call = new IncomingCall(
        { takeOutcome: answer } as ConstructorParameters<typeof IncomingCall>[0],
        1,
        0,
      );
      this.served.push(call);
      methods[method]?.serve(call, this.#ownerLink, sent);
    });
  }

  #pump(): void {
    if (!this.#pumps) return;
    for (const port of [this.owner, this.mover]) port.progress(0, silent);
    setImmediate(() => this.#pump());
  }

  close(): void {
    this.#pumps = false;
    this.sessionMover.end();
    this.#sealedOwner.end();
    this.owner.close();
    this.mover.close();
  }
}

const layout = { slotBytes: 4096, sendSlots: 4, receiveSlots: 4 };

const rawOf = (port: MemPort): Uint8Array => Buffer.from(port.url.slice("mem://".length));

const silent: PortSink = {
  onMessage: () => {},
  onMessageLost: () => {},
  onPutNotification: () => {},
  onPeerGone: () => {},
};
