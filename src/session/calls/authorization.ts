import { type RpcError, remoteError, rpcErrorFields } from "../../base/errors/rpc-error.ts";
import type { ByteShare } from "../../base/flow/byte-budget.ts";
import { runDetached } from "../../base/time/detached-context.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import type { Allow, Authorize } from "../../security/authorization-options.ts";
import type { SecurityRefusal } from "../../security/security-meter.ts";
import { methodAt } from "../../transfer/control/control-method.ts";
import { builtinMethods } from "../../wire/builtin.ts";
import { noMetadata } from "../../wire/metadata/metadata.ts";
import type { Session } from "../connection/session.ts";

/** The reason why a call may not run. Undefined: it may run. Never rejects. */
export type PendingVerdict = Promise<RpcError | undefined>;

/**
 * Decides which methods the peer of one session may call. A session has one if its engine has `allow` or `authorize`.
 */
export class Authorization {
  readonly #session: Session;
  readonly #allow: Allow | undefined;
  readonly #authorize: Authorize | undefined;
  /** The verdicts of `allow`, by `service/method`: bounded by the number of methods. */
  readonly #allowed = new Map<string, RpcError | undefined>();

  /** Undefined when every call may run. */
  static of(session: Session): Authorization | undefined {
    const { allow, authorize } = session.services.security ?? {};
    if (allow === undefined && authorize === undefined) return undefined;
    return new Authorization(session, allow, authorize);
  }

  private constructor(session: Session, allow: Allow | undefined, authorize: Authorize | undefined) {
    this.#session = session;
    this.#allow = allow;
    this.#authorize = authorize;
  }

  /** Whether a call of a method that has a path may run. Its input has not been decoded. */
  check(call: IncomingCall): RpcError | undefined | PendingVerdict {
    const method = methodAt(this.#session, call.method);
    // The method will be answered with `unimplemented`, or it belongs to engines themselves.
    if (method?.path === undefined) return undefined;
    if (call.isBuiltin && builtinMethods[method.path]?.isOfCall) return undefined;
    const refused = this.refusalOf(method.path);
    if (refused !== undefined || this.#authorize === undefined) return refused;
    const { path } = method;
    const { identity, peerName } = this.#session;
    const thrown = (error: unknown) => {
      if (rpcErrorFields(error) === undefined) method.onThrown?.(call, error);
      return this.#failed("authorize", path, error);
    };
    try {
      const metadata = call.metadata ?? noMetadata;
      const request = Object.freeze({ method: path, identity, metadata, peer: peerName });
      const said = runDetached(this.#authorize, request);
      if (!isPromiseLike(said)) return this.#verdict(said, "not_authorized", path);
      return Promise.resolve(said).then(
        (permits: unknown) => this.#verdict(permits, "not_authorized", path),
        thrown,
      );
    } catch (error) {
      return thrown(error);
    }
  }

  /** Whether `allow` lets the peer call a method. The method is not called, so nothing is counted. */
  permits(path: string): boolean {
    if (this.#allow === undefined) return true;
    if (this.#allowed.has(path)) return this.#allowed.get(path) === undefined;
    try {
      return (runDetached(this.#allow, this.#session.identity, path) as unknown) === true;
    } catch {
      return false;
    }
  }

  /** The verdict of `allow` for a method, or for a control request by its name. Asked once, and kept. */
  refusalOf(path: string): RpcError | undefined {
    if (this.#allow === undefined) return undefined;
    const known = this.#allowed.get(path);
    if (known !== undefined) {
      this.#count("not_allowed", path, known);
      return known;
    }
    if (this.#allowed.has(path)) return undefined;
    try {
      const allows = runDetached(this.#allow, this.#session.identity, path);
      const verdict = this.#verdict(allows, "not_allowed", path);
      this.#allowed.set(path, verdict);
      return verdict;
    } catch (error) {
      return this.#failed("allow", path, error);
    }
  }

  #verdict(permits: unknown, refusal: SecurityRefusal, path: string): RpcError | undefined {
    // Any other value that a function returns by mistake permits nothing.
    if (permits === true) return undefined;
    const { identity } = this.#session;
    const refused =
      identity === undefined
        ? remoteError("unauthenticated", `${path} needs a peer that proves who it is`)
        : remoteError("permission_denied", `the caller is not permitted to call ${path}`);
    this.#count(refusal, path, refused);
    return refused;
  }

  #count(refusal: SecurityRefusal, method: string, { message }: RpcError): void {
    const { services, identity, peerName } = this.#session;
    services.securityMeter.onRefused({
      refusal: identity === undefined ? "unproven" : refusal,
      peer: peerName,
      identity,
      method,
      why: message,
    });
  }

  #failed(name: "allow" | "authorize", method: string, error: unknown): RpcError {
    const { services, identity, peerName } = this.#session;
    const why = `security.${name} threw`;
    services.securityMeter.onRefused({ refusal: "failed", peer: peerName, identity, method, why, error });
    const fields = rpcErrorFields(error);
    if (fields === undefined) return remoteError("internal", "the authorization failed");
    const { code, message, retryAfterMs } = fields;
    return remoteError(code, message, { retryAfterMs });
  }
}

/**
 * Continues a call when it may run. Until then the bytes of its body count in the peer's share. Only `goOn` keeps the
 * body. The verdict may never come, so a call that ends before drops `goOn`.
 */
export function onceAuthorized(
  call: IncomingCall,
  verdict: PendingVerdict,
  share: ByteShare,
  bodyBytes: number,
  goOn: () => void,
): void {
  const held = { goOn: goOn as (() => void) | undefined };
  const letGo = (): void => {
    held.goOn = undefined;
    share.give(bodyBytes);
  };
  share.hold(bodyBytes);
  call.awaits = { onAborted: letGo, onAbandoned: letGo };
  void verdict.then((refused) => {
    const next = held.goOn;
    if (next === undefined) return;
    letGo();
    call.awaits = undefined;
    if (refused === undefined) next();
    else call.settle({ error: refused });
  });
}

function isPromiseLike(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}
