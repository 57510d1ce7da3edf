import type { RpcCode } from "../base/errors/code.ts";
import { type RpcError, remoteError } from "../base/errors/rpc-error.ts";
import type { EngineLimits } from "../base/flow/engine-limits.ts";
import type { Clock } from "../base/time/clock.ts";
import type { HandlerBegun, IncomingCall } from "../call/incoming-call.ts";
import { type Identity, isSamePrincipal } from "../security/identity.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { ReplayEntry } from "./replay-entry.ts";

/** The state of one caller. */
interface Caller {
  /** The identity of the caller at its first call. */
  readonly identity: Identity | undefined;
  /** Calls up to this sequence number without an entry may have been executed and dropped. */
  floor: number;
  /** By sequence number, in order of arrival. */
  readonly entries: Map<number, ReplayEntry>;
  running: number;
}

/**
 * The most remembered callers. Retries of a dropped caller can only be rejected, so this is far more than the number of
 * sessions.
 */
const maxCallers = 8192;

/**
 * The executions of methods with `replay`, by caller. A retried request joins its execution or receives the kept
 * response. It is rejected when neither is certain. So no request is executed twice.
 *
 * A caller numbers its calls and reports with each which calls it has settled, so a response is dropped as soon as its
 * caller has it. The executions of silent callers are bounded in number, bytes and time; the oldest is dropped first.
 * The caller's `floor` remembers dropped executions. The scheme is RIFL's (C. Lee and others, "Implementing
 * Linearizability at Large Scale and Low Latency", SOSP 2015), without its leases and its log: what a process has
 * executed is forgotten with it, and the incarnation in the request reveals that.
 */
export class ReplayCache {
  readonly #clock: Clock;
  readonly #limits: EngineLimits;
  readonly #bindsIdentity: boolean;
  /** Callers, the one that has been silent longest first. */
  readonly #callers = new Map<bigint, Caller>();
  /** Ended executions, the oldest first. */
  readonly #ended = new Set<ReplayEntry>();
  /** The number of executions whose handlers have not ended, with or without waiting requests. */
  running = 0;
  /** Bytes of the kept responses. */
  bytes = 0;
  /** A caller was dropped: an unknown caller may have sent requests before. */
  #hasForgotten = false;
  #cancelTimer: (() => void) | undefined;

  /** `bindsIdentity`: an answer is only for the identity that asked first. */
  constructor(clock: Clock, limits: EngineLimits, bindsIdentity = false) {
    this.#clock = clock;
    this.#limits = limits;
    this.#bindsIdentity = bindsIdentity;
  }

  /** The number of executions that run, or whose response is kept. */
  get size(): number {
    return this.running + this.#ended.size;
  }

  /**
   * Takes a request with an identity. Returns the call to execute, which outlives the request. Undefined when the
   * request has joined an execution, was answered, or was rejected.
   */
  admit(request: IncomingCall, identity: CallIdentity, session: PeerLink): IncomingCall | undefined {
    const { incarnation, sequence } = identity;
    const { services: host } = session;
    if (incarnation !== 0n && incarnation !== host.incarnation)
      return refuseUnknown(request, "by another process at this address");
    // A caller that has sent requests before, but is unknown, was dropped.
    if (incarnation !== 0n && this.#hasForgotten && !this.#callers.has(identity.caller))
      return refuseUnknown(request, "its caller was silent for too long");
    const caller = this.#callerOf(identity.caller, sequence, session.identity);
    // Answers are only for their caller. Its number is random, so another identity with the same number has learned it.
    if (this.#bindsIdentity && !isSamePrincipal(caller.identity, session.identity)) {
      const message = "the calls of this caller belong to another identity";
      session.onOtherIdentity(message);
      return refuse(request, "elsewhere", "permission_denied", message);
    }
    this.#settle(caller, identity.settled);
    const entry = caller.entries.get(sequence);
    if (entry !== undefined) {
      host.counters.replays++;
      entry.join(request, session);
      return undefined;
    }
    if (sequence <= caller.floor) return refuseUnknown(request, "its answer is not kept any more");
    if (!this.#makeRoom()) {
      const { maxReplayCalls } = this.#limits;
      const message = `${maxReplayCalls} calls of methods with replay are running; that is limits.maxReplayCalls`;
      // No such high number was ever dropped, so an earlier attempt did not arrive.
      return refuse(request, "none", "resource_exhausted", message);
    }
    const added = new ReplayEntry(this.#onEntryEnded, session, request, identity.caller, sequence);
    caller.entries.set(sequence, added);
    caller.running++;
    this.running++;
    return added.call;
  }

  readonly #onEntryEnded = (entry: ReplayEntry): void => {
    const caller = this.#callers.get(entry.caller) as Caller;
    this.running--;
    caller.running--;
    // No handler has begun: another attempt may be executed.
    if (entry.call.handler === "none") {
      caller.entries.delete(entry.sequence);
      return;
    }
    entry.endedMs = this.#clock.now();
    this.#ended.add(entry);
    this.bytes += entry.bytes;
    // The caller has settled it meanwhile, so no request will ask for it.
    if (entry.sequence <= caller.floor) this.#forget(entry, caller);
    for (const oldest of this.#ended) {
      if (this.bytes <= this.#limits.maxReplayBytes) break;
      this.#forget(oldest);
    }
    this.#arm();
  };

  close(reason: RpcError): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    for (const { entries } of this.#callers.values())
      for (const entry of entries.values()) if (entry.running) entry.abandon(reason);
    this.#callers.clear();
    this.#ended.clear();
    this.running = 0;
    this.bytes = 0;
  }

  #callerOf(number: bigint, sequence: number, identity: Identity | undefined): Caller {
    let caller = this.#callers.get(number);
    if (caller !== undefined) this.#callers.delete(number);
    else {
      if (this.#callers.size >= maxCallers) this.#forgetCaller();
      // The caller may have been dropped. Then its earlier requests may have been executed.
      caller = {
        identity,
        floor: this.#hasForgotten ? sequence - 1 : 0,
        entries: new Map(),
        running: 0,
      };
    }
    this.#callers.set(number, caller);
    return caller;
  }

  /** The caller will not retry calls below `settled`. */
  #settle(caller: Caller, settled: number): void {
    caller.floor = Math.max(caller.floor, settled - 1);
    for (const [sequence, entry] of caller.entries) {
      if (sequence >= settled) break;
      if (!entry.running) this.#forget(entry, caller);
    }
  }

  /**
   * Makes room for one more execution, if necessary by dropping the oldest response. False when all executions are
   * running.
   */
  #makeRoom(): boolean {
    if (this.size < this.#limits.maxReplayCalls) return true;
    const [oldest] = this.#ended;
    if (oldest === undefined) return false;
    this.#forget(oldest);
    return true;
  }

  #forget(entry: ReplayEntry, caller = this.#callers.get(entry.caller)): void {
    this.#ended.delete(entry);
    this.bytes -= entry.bytes;
    if (caller === undefined) return;
    caller.entries.delete(entry.sequence);
    caller.floor = Math.max(caller.floor, entry.sequence);
  }

  #forgetCaller(): void {
    for (const [number, { entries, running }] of this.#callers) {
      if (running > 0) continue;
      for (const entry of entries.values()) this.#forget(entry);
      this.#callers.delete(number);
      this.#hasForgotten = true;
      return;
    }
  }

  /** Drops old responses by a timer, which runs only while there are responses. */
  #arm(): void {
    const [oldest] = this.#ended;
    if (this.#cancelTimer !== undefined || oldest === undefined) return;
    const delayMs = Math.max(0, oldest.endedMs + this.#limits.maxReplayMs - this.#clock.now());
    this.#cancelTimer = this.#clock.timer(Math.ceil(delayMs), () => this.#expire(), true);
  }

  #expire(): void {
    this.#cancelTimer = undefined;
    const until = this.#clock.now() - this.#limits.maxReplayMs;
    for (const entry of this.#ended) {
      if (entry.endedMs > until) break;
      this.#forget(entry);
    }
    this.#arm();
  }
}

/** Rejects a request when an earlier attempt may have been executed, and its outcome is unknown. */
export function refuseUnknown(request: IncomingCall, why: string): undefined {
  return refuse(request, "elsewhere", "aborted", `an earlier attempt may have been executed: ${why}`);
}

function refuse(request: IncomingCall, handler: HandlerBegun, code: RpcCode, message: string): undefined {
  request.handler = handler;
  request.settle({ error: remoteError(code, message) });
  return undefined;
}
