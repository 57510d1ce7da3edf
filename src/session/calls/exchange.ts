/*
 * The part `session/calls`: the calls on one session, in both directions, and the regions that requests grant.
 * Promises: the number of a call belongs to one call at a time. Calls in flight stay within the peer's credits. All
 * calls settle when the session ends.
 * Takes: frames and bodies from `session/connection`, the state of calls from `call`, grants from `memory`.
 */

import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { PeerAccount } from "../../base/flow/peer-account.ts";
import type { Clock } from "../../base/time/clock.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import type { Port } from "../../fabric/port.ts";
import { GrantedRegions } from "../../memory/granted-regions.ts";
import type { Identity } from "../../security/identity.ts";
import { staysOnHost } from "../../security/security-options.ts";
import { ControlRequest } from "../../transfer/control/control-request.ts";
import type { ControlRequestOptions, PeerLink, RefusedTransfer } from "../../transfer/control/peer-link.ts";
import { PieceMover } from "../../transfer/sealed/mover.ts";
import { PieceOwner } from "../../transfer/sealed/owner.ts";
import { frameKind } from "../../wire/frame.ts";
import type { Greeting } from "../../wire/handshake.ts";
import type { EngineServices } from "../connection/engine-services.ts";
import type { Session } from "../connection/session.ts";
import type { SessionPart } from "../connection/session-part.ts";
import type { Teardown } from "../liveness/teardown.ts";
import { executedFrames } from "./executed-calls.ts";
import { explainDenial } from "./explain-denial.ts";
import { IncomingCalls } from "./incoming-calls.ts";
import { OutgoingCalls } from "./outgoing-calls.ts";

/** The calls on one session, in both directions. For handlers, transfers and requests it is also the session's peer. */
export class Exchange implements SessionPart, PeerLink {
  readonly session: Session;
  readonly services: EngineServices;
  readonly account: PeerAccount;
  readonly port: Port;
  readonly address: number;
  readonly clock: Clock;
  readonly frames: SessionPart["frames"];
  readonly grants: GrantedRegions;
  readonly outgoing: OutgoingCalls;
  readonly incoming: IncomingCalls;
  #sealedMover: PieceMover | undefined;
  #sealedOwner: PieceOwner | undefined;

  constructor(session: Session) {
    const { services, account, port, address } = session;
    this.session = session;
    this.services = services;
    this.account = account;
    this.port = port;
    this.address = address;
    this.clock = services.clock;
    this.grants = new GrantedRegions(port, address);
    const outgoing = new OutgoingCalls(session, this);
    const incoming = new IncomingCalls(session, this);
    outgoing.served = incoming;
    incoming.made = outgoing;
    this.outgoing = outgoing;
    this.incoming = incoming;
    this.frames = {
      [frameKind.request]: incoming.onRequest,
      [frameKind.response]: outgoing.onAnswer,
      [frameKind.error]: outgoing.onAnswer,
      [frameKind.cancel]: incoming.onCancel,
      [frameKind.headers]: outgoing.onHeaders,
      [frameKind.credits]: outgoing.onCredits,
      [frameKind.executed]: executedFrames(session, outgoing),
    };
  }

  // ---- a part of its session --------------------------------------------------------------------------------------

  get openWork(): number {
    return this.outgoing.size + this.outgoing.waiting.size + this.incoming.size;
  }

  onOpen({ requests }: Greeting): void {
    this.outgoing.limit(requests);
  }

  onRoom(): void {
    this.outgoing.sendWaiting();
  }

  onDraining(): void {
    this.outgoing.onDraining();
  }

  grantCredits(share: number): void {
    this.incoming.grantCredits(share);
  }

  onEcho(word: number): void {
    this.incoming.onEcho(word);
  }

  end(reason: RpcError, teardown: Teardown): void {
    this.#sealedMover?.end();
    this.#sealedOwner?.end();
    const lasting = this.grants.lasting.end();
    teardown.addGrants([...this.outgoing.end(reason), ...lasting]);
    teardown.addTransfers(this.incoming.end(reason, teardown.onTransferEnded));
  }

  // ---- the peer, for handlers and transfers -----------------------------------------------------------------------

  get state(): Session["state"] {
    return this.session.state;
  }

  /** The peer's greeting. Undefined while the session opens. */
  get remote(): Greeting | undefined {
    return this.session.remote;
  }

  get identity(): Identity | undefined {
    return this.session.identity;
  }

  get isConfidential(): boolean {
    return this.session.ciphers !== undefined || staysOnHost(this.session.port.scheme);
  }

  get peerName(): string {
    return this.session.peerName;
  }

  part<P extends object>(type: abstract new (...args: never[]) => P): P {
    return this.session.part(type);
  }

  get sealedMover(): PieceMover | undefined {
    const { regions } = this.session.sealing;
    if (regions !== undefined) this.#sealedMover ??= new PieceMover(this, regions);
    return this.#sealedMover;
  }

  get sealedOwner(): PieceOwner | undefined {
    const { regions } = this.session.sealing;
    if (regions !== undefined) this.#sealedOwner ??= new PieceOwner(this, regions);
    return this.#sealedOwner;
  }

  get peerImmediateBytes(): number | undefined {
    return this.remote?.immediateBytes;
  }

  /**
   * Sends a control request, and returns its answer. Rejects with an RpcError: `deadline_exceeded` after `timeoutMs`,
   * by default 10 s.
   */
  request(method: number, input: unknown, options?: ControlRequestOptions): Promise<unknown> {
    return new ControlRequest(this.outgoing, method, input, options).promise;
  }

  onOverdue(call: IncomingCall): void {
    this.incoming.onOverdue(call);
  }

  refusalOf(path: string): RpcError | undefined {
    return this.incoming.authorization?.refusalOf(path);
  }

  permits(path: string): boolean {
    return this.incoming.authorization?.permits(path) ?? true;
  }

  onOtherIdentity(why: string): void {
    const { services, peerName, identity } = this.session;
    services.securityMeter.onRefused({ refusal: "other_identity", peer: peerName, identity, why });
  }

  explain(refused: RefusedTransfer): Promise<RpcError | undefined> {
    const breaks = this.port.refusesSilently;
    if (breaks) this.session.transferRefused = true;
    return explainDenial(this, refused, breaks ? (reason) => this.session.end(reason) : undefined);
  }
}
