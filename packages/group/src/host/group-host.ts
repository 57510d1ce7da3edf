import { type EngineMiddleware, type Implementation, implement, RpcError } from "cinnabar/standard";
import {
  type FollowRequest,
  type JoinAnswer,
  type JoinRequest,
  type LeaveRequest,
  Membership,
  type Published,
} from "../coordinator/membership-service.ts";
import { fencing, type Presence } from "./freshness.ts";

/** A group whose members ask each other, as this process answers for it. */
export interface HostedGroup {
  readonly published: Published;
  onFollow(request: FollowRequest, signal: AbortSignal): AsyncIterable<Published>;
  onJoin(request: JoinRequest): Promise<JoinAnswer>;
  onLeave(request: LeaveRequest): Promise<void>;
}

/**
 * What a process serves for its groups. It is made before the engine, and given to it and to `joinGroup`. One serves
 * any number of groups.
 *
 * @example
 * const host = new GroupHost();
 * const engine = await Engine.open({
 *   listen: "tcp://10.0.0.1:7400",
 *   serve: [store, ...host.serve],
 *   middleware: host.middleware,
 * });
 * const group = await joinGroup("store", { engine, host, authority });
 */
export class GroupHost {
  /** For `serve` of `Engine.open`. */
  readonly serve: readonly Implementation[];
  /**
   * For `middleware` of `Engine.open`. Callers that are behind learn it with the answer, and members that were removed
   * are refused. Without it they find out later.
   */
  readonly middleware: EngineMiddleware;
  readonly #groups = new Map<string, HostedGroup>();
  readonly #presences = new Map<string, Presence>();

  constructor() {
    const membership = implement(Membership, {
      view: (group) => this.#require(group).published,
      follow: (request, { signal }) => this.#require(request.group).onFollow(request, signal),
      join: (request) => this.#require(request.group).onJoin(request),
      leave: (request) => this.#require(request.published.view.group).onLeave(request),
    });
    this.serve = [membership];
    this.middleware = { server: [fencing((name) => this.#presences.get(name))] };
  }

  /**
   * Answers for a group until the returned function is called.
   *
   * @throws RpcError `already_exists` when this process is a member already
   */
  add(name: string, group: HostedGroup): () => void {
    if (this.#groups.has(name))
      throw new RpcError({
        code: "already_exists",
        message: `this process is a member of group "${name}" already`,
      });
    this.#groups.set(name, group);
    return () => {
      if (this.#groups.get(name) === group) this.#groups.delete(name);
    };
  }

  /** @internal The group that callers are judged by, until the returned function is called. */
  present(name: string, presence: Presence): () => void {
    this.#presences.set(name, presence);
    return () => {
      if (this.#presences.get(name) === presence) this.#presences.delete(name);
    };
  }

  #require(name: string): HostedGroup {
    const group = this.#groups.get(name);
    if (group !== undefined) return group;
    throw new RpcError({ code: "not_found", message: `this process is no member of group "${name}"` });
  }
}
