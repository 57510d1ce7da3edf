import { randomInt } from "node:crypto";
import type { RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Port, PortSink } from "../fabric/port.ts";
import { channels } from "../observe/channels.ts";
import { decodeAt } from "../wire/codec.ts";
import { frameFault, frameFlag, frameHeaderBytes, frameKind } from "../wire/frame.ts";
import {
  type Greeting,
  packGreeting,
  parseGreeting,
  parseReturnPath,
  type ReturnPath,
  versionFault,
} from "../wire/handshake.ts";
import { alignFrame, messageFault, messageHeaderBytes, protocolVersion } from "../wire/message.ts";
import type { WindowLimits } from "./in-flight-window.ts";
import { NoticeTargets } from "./notice-targets.ts";
import { Session } from "./session.ts";
import type { SessionHost } from "./session-host.ts";

const maxUint32 = 0xffff_ffff;

/** Nothing was heard from a peer that was to be connected to; another hello may be. */
export class ConnectSilence extends RpcError {
  constructor(peerName: string, timeoutMs: number) {
    super({
      code: "unavailable",
      message: `${peerName} did not answer within ${timeoutMs} ms`,
      origin: "fabric",
    });
  }
}

/**
 * The sessions of one engine, and what arrives at its ports: each message goes to the session it names, a hello makes a new one.
 *
 * A message's index and nonce prove that it is meant for this session and no other before it; anything else is a stray, counted and dropped.
 */
export class SessionTable implements PortSink {
  readonly #host: SessionHost;
  /** By index; 0 stays free, it stands for "no session yet". */
  readonly #sessions: (Session | undefined)[] = [undefined];
  readonly #free: number[] = [];
  /** By port and address, kept beyond a session's end: its peer's death may still be told. A new session at the address takes the place. */
  readonly #byAddress = new Map<Port, Map<number, Session>>();
  #size = 0;
  /** False from the moment the engine drains. */
  accepting = true;

  constructor(host: SessionHost) {
    this.#host = host;
  }

  get size(): number {
    return this.#size;
  }

  *[Symbol.iterator](): IterableIterator<Session> {
    for (const session of this.#sessions) if (session !== undefined) yield session;
  }

  /** Opens a session towards an address, and settles when the peer has welcomed us. */
  async connect(
    port: Port,
    address: number,
    replyTo: Uint8Array,
    peerName: string,
    timeoutMs: number,
    window?: WindowLimits,
  ): Promise<Session> {
    const host = this.#host;
    // The address is in use already.
    const full = this.#fullWith(port, 0);
    if (full !== undefined) {
      port.forget(address);
      throw new RpcError({ code: "resource_exhausted", message: full, origin: "local" });
    }
    const session = this.#add(port, address, peerName, window);
    const cancelTimer = host.clock.timer(timeoutMs, () =>
      session.end(new ConnectSilence(peerName, timeoutMs), { quiet: true }),
    );
    try {
      await session.connect(
        packGreeting({ ...this.#greeting(session), address: replyTo, lanes: [], services: [] }),
      );
      this.#tellCredits(session);
      return session;
    } finally {
      cancelTimer();
    }
  }

  /** Called when a session has ended. */
  remove(session: Session): void {
    if (this.#sessions[session.index] !== session) return;
    this.#sessions[session.index] = undefined;
    this.#free.push(session.index);
    this.#size--;
    this.#shareCredits();
  }

  onMessage(port: Port, offset: number, bytes: number): void {
    const view = port.slabView;
    this.#host.counters.messagesReceived++;
    const fault = messageFault(view, offset, bytes);
    const session = bytes < messageHeaderBytes ? undefined : this.#addressee(port, offset);
    if (fault !== "") {
      // Index and nonce are known to one peer only: the message is its, or was damaged on the way; either way no session can go on.
      if (session !== undefined) session.fault(fault);
      else this.#malformed(port, fault);
    } else if (session !== undefined) session.receive(offset, bytes);
    else if (view.getUint32(offset + 8, true) === 0) this.#onHello(port, offset, bytes);
    else this.#host.counters.strays++;
  }

  /** The session that a message names and proves to be meant for. */
  #addressee(port: Port, offset: number): Session | undefined {
    const session = this.#sessions[port.slabView.getUint32(offset + 8, true)];
    const proven = session?.nonce === port.slabView.getUint32(offset + 12, true) && session.port === port;
    return proven ? session : undefined;
  }

  onMessageLost(port: Port, status: number): void {
    this.#malformed(port, `a message could not be received: error ${status}`);
  }

  onNotice(port: Port, data: bigint, bytes: number): void {
    const fault = NoticeTargets.of(port).deliver(data, bytes);
    if (fault !== "") this.#malformed(port, fault);
  }

  onPeerGone(port: Port, address: number): void {
    this.#byAddress.get(port)?.get(address)?.onPeerGone();
  }

  #onHello(port: Port, offset: number, bytes: number): void {
    const view = port.slabView;
    const at = offset + messageHeaderBytes;
    const fault = frameFault(view, at, offset + bytes);
    if (fault !== "") return this.#malformed(port, fault);
    if (view.getUint8(at) !== frameKind.hello)
      return this.#malformed(port, "message without a session is no hello");
    if ((view.getUint8(at + 1) & frameFlag.overflow) !== 0)
      return this.#malformed(port, "hello is overflowed");
    const start = at + frameHeaderBytes;
    const bodyBytes = view.getUint32(at + 8, true);
    if (view.getUint16(offset + 2, true) !== 1 || start + alignFrame(bodyBytes) !== offset + bytes) {
      return this.#malformed(port, "hello is not alone in its message");
    }
    let body: unknown;
    try {
      body = decodeAt(port.slab, start, start + bodyBytes);
    } catch (error) {
      return this.#malformed(port, `hello: ${(error as Error).message}`);
    }
    const greeting = parseGreeting(body);
    if (typeof greeting !== "string") return this.#accept(port, greeting);
    this.#malformed(port, `hello: ${greeting}`);
    const path = parseReturnPath(body);
    const code = versionFault(body) === "" ? "internal" : "unimplemented";
    if (typeof path !== "string") this.#refuse(port, path, code, greeting);
  }

  #accept(port: Port, greeting: Greeting): void {
    if (!this.accepting) return this.#refuse(port, greeting, "unavailable", "the server is closing");
    const full = this.#fullWith(port, 1);
    if (full !== undefined) {
      this.#refuse(port, greeting, "resource_exhausted", full);
      return this.#probeIdle();
    }
    const address = this.#admit(port, greeting);
    if (address === undefined) return;
    const session = this.#add(port, address, `peer ${greeting.incarnation.toString(16)} over ${port.scheme}`);
    const lanes = this.#host.lanesFor(port);
    session.accept(
      greeting,
      packGreeting({ ...this.#greeting(session), lanes, services: this.#host.services }),
    );
    this.#tellCredits(session);
    // Whoever said hello may be gone: then the welcome would keep its slot and its way for ever.
    this.#host.watch(session);
  }

  /** Why there is no room for another session, which takes so many addresses more of the port; undefined where there is. */
  #fullWith(port: Port, addresses: number): string | undefined {
    const { maxSessions } = this.#host.limits;
    if (this.#size >= maxSessions) return `maxSessions ${maxSessions} is reached`;
    if (port.maxPeers === Number.POSITIVE_INFINITY || port.gauges().addresses + addresses <= port.maxPeers)
      return undefined;
    return `${port.provider} has room for ${port.maxPeers} peers; FI_UNIVERSE_SIZE in the environment raises it, where the device's completion queues are long enough`;
  }

  /** Tells whoever said hello why it cannot have a session. */
  #refuse(port: Port, path: ReturnPath, code: RpcCode, message: string): void {
    const address = this.#admit(port, path);
    if (address === undefined) return;
    this.#host.counters.sessionsRefused++;
    this.#add(port, address, `peer over ${port.scheme}`).refuse(
      path,
      new RpcError({ code, message, origin: "remote" }),
    );
  }

  #admit(port: Port, path: ReturnPath): number | undefined {
    try {
      return port.admit(path.address);
    } catch {
      // Whoever said hello is gone already, or lied about where it is.
      this.#host.counters.sessionsRefused++;
      return undefined;
    }
  }

  /** Sessions of peers that died while nothing was open are noticed when room is needed. */
  #probeIdle(): void {
    for (const session of this) {
      if (session.state === "open" && !session.hasOpenWork) this.#host.probe(session);
    }
  }

  #add(port: Port, address: number, peerName: string, window?: WindowLimits): Session {
    const index = this.#free.pop() ?? this.#sessions.length;
    const session = new Session(this.#host, port, address, index, randomInt(1, maxUint32), peerName, window);
    this.#sessions[index] = session;
    this.#size++;
    this.#shareCredits();
    let byAddress = this.#byAddress.get(port);
    if (byAddress === undefined) {
      byAddress = new Map();
      this.#byAddress.set(port, byAddress);
    }
    byAddress.set(address, session);
    return session;
  }

  #shareCredits(): void {
    if (!this.#host.credits.shareAmong(this.#size)) return;
    for (const session of this) this.#tellCredits(session);
  }

  /** Whoever serves nothing is asked for nothing. */
  #tellCredits(session: Session): void {
    if (this.#host.methods.length > 0) session.tellCredits(this.#host.credits.share);
  }

  #greeting(session: Session): Omit<Greeting, "services" | "lanes"> {
    const { limits, incarnation, liveness } = this.#host;
    return {
      versions: [protocolVersion, protocolVersion],
      incarnation,
      session: session.index,
      nonce: session.nonce,
      address: noAddress,
      agent: `cinnabar/${version} ${session.port.agent}`,
      messageBytes: session.port.slotBytes,
      bodyBytes: limits.maxBodyBytes,
      requests: limits.maxRequests,
      immediateBytes: session.port.immediateBytes,
      heartbeatMs: Math.ceil(liveness.heartbeatMs),
    };
  }

  #malformed(port: Port, fault: string): void {
    this.#host.counters.malformed++;
    if (channels.malformed.hasSubscribers)
      channels.malformed.publish({ peer: `unknown over ${port.scheme}`, fault });
  }
}

const noAddress = new Uint8Array(0);
const version = "0.1";
