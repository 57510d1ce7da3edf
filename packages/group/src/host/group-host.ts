import { type Engine, type Implementation, implement, type Middleware, RpcError } from "cinnabar/standard";
import type { GroupImplementation } from "../collective/handlers.ts";
import {
  type FollowRequest,
  type JoinAnswer,
  type JoinRequest,
  type LeaveRequest,
  Membership,
  type Published,
} from "../coordinator/membership-service.ts";
import { type ExchangeImplementation, implementExchanges } from "../exchange/exchanges.ts";
import { fencing, type Presence } from "./freshness.ts";

/** A group whose members ask each other, as this process answers for it. */
export interface HostedGroup {
  readonly published: Published;
  onFollow(request: FollowRequest, signal: AbortSignal): AsyncIterable<Published>;
  onJoin(request: JoinRequest): Promise<JoinAnswer>;
  onLeave(request: LeaveRequest): Promise<void>;
}

/** What a member of a group executes for others. */
export interface ServedByMember {
  /** Those with collectives: what `joinGroup` was given, and `exchanges`. */
  readonly implementations: readonly GroupImplementation[];
  readonly exchanges: ExchangeImplementation;
}

/** A service that the engine serves for its groups. */
interface Served {
  readonly implementation: Implementation;
  /** Whether members that were removed are refused. */
  readonly isFenced: boolean;
}

const hosts = new WeakMap<Engine, GroupHost>();

/** The services of all groups that an engine is a member of. There is one for each engine, made when it is asked for. */
export class GroupHost {
  readonly #engine: Engine;
  readonly #served = new Map<string, Served>();
  readonly #groups = new Map<string, HostedGroup>();
  readonly #presences = new Map<string, Presence>();
  readonly #exchanges = implementExchanges();
  readonly #membership: Implementation;
  readonly #fence: Middleware;

  static of(engine: Engine): GroupHost {
    let host = hosts.get(engine);
    if (host === undefined) {
      host = new GroupHost(engine);
      hosts.set(engine, host);
    }
    return host;
  }

  private constructor(engine: Engine) {
    this.#engine = engine;
    this.#fence = fencing((name) => this.#presences.get(name));
    this.#membership = implement(Membership, {
      view: (group) => this.#require(group).published,
      follow: (request, { signal }) => this.#require(request.group).onFollow(request, signal),
      join: (request) => this.#require(request.group).onJoin(request),
      leave: (request) => this.#require(request.published.view.group).onLeave(request),
    });
  }

  /**
   * Serves what a member executes: the implementations, barriers and exchanges. What the engine serves
   * already, for another group, it goes on to serve. `isFenced`: callers that were removed from their group are refused,
   * and callers that are behind learn it with the answer.
   *
   * @throws as `engine.serve`, and TypeError for an implementation that is served without the fence and needs it
   */
  serve(implementations: readonly Implementation[], isFenced: boolean): ServedByMember {
    const all = [...implementations, this.#exchanges];
    this.#serve(all, isFenced);
    return { implementations: all.filter(hasCollectives), exchanges: this.#exchanges };
  }

  /** Answers questions about groups. */
  serveMembership(): void {
    this.#serve([this.#membership], false);
  }

  #serve(implementations: readonly Implementation[], isFenced: boolean): void {
    const added = implementations.filter((each) => {
      const served = this.#served.get(each?.service?.name);
      if (served?.implementation !== each) return true;
      if (served.isFenced || !isFenced) return false;
      throw new TypeError(
        `joinGroup: "${each.service.name}" is served for a group whose members never change; join that group after the others`,
      );
    });
    const around = isFenced ? [this.#fence] : [];
    this.#engine.serve(
      ...added.map((each) =>
        isFenced ? Object.freeze({ ...each, middleware: [...around, ...(each.middleware ?? [])] }) : each,
      ),
    );
    for (const implementation of added)
      this.#served.set(implementation.service.name, { implementation, isFenced });
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

  /** The group that callers are judged by, until the returned function is called. */
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

const hasCollectives = (implementation: Implementation): implementation is GroupImplementation =>
  (implementation as Partial<GroupImplementation>).hosts instanceof Map;
