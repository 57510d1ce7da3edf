import { setTimeout as pause } from "node:timers/promises";
import { checkedBy, type FieldsOf, fail, milliseconds, required, resolveOptions } from "cinnabar/options";
import { type Client, type Engine, RpcError } from "cinnabar/standard";
import type {
  Authority,
  AuthorityContext,
  Candidate,
  Membership,
  Observation,
} from "../authority/authority.ts";
import { GroupHost } from "../host/group-host.ts";
import { memberOf } from "../view/view.ts";
import { CoordinatedMembership } from "./coordinated-membership.ts";
import { CoordinatedObservation } from "./coordinated-observation.ts";
import { Ledger } from "./ledger.ts";
import {
  isRefusal,
  type JoinAnswer,
  Membership as MembershipService,
  type Published,
  refusedBy,
} from "./membership-service.ts";
import { isNobody } from "./probe.ts";

export interface CoordinatorOptions {
  /**
   * URLs of members that are asked first; one that answers is enough. The process at the first URL makes the group if
   * there is no group yet. A function is called again for each try.
   */
  readonly seeds: readonly string[] | (() => readonly string[] | Promise<readonly string[]>);
  /** How long to look for the group, in milliseconds. Default: 30,000. */
  readonly joinTimeoutMs?: number | undefined;
  /** How long another process may take to say that it lives, in milliseconds. Default: 2000. */
  readonly probeTimeoutMs?: number | undefined;
  /**
   * How often a member asks another one for missed views, in milliseconds. An observer does so too, if the members
   * permit it to ask for views and do not permit it to follow them. Default: 5000.
   */
  readonly refreshMs?: number | undefined;
}

const fields = {
  seeds: required(
    checkedBy((where, name, value): CoordinatorOptions["seeds"] => {
      if (
        typeof value === "function" ||
        (Array.isArray(value) && value.every((url) => typeof url === "string"))
      )
        return value as CoordinatorOptions["seeds"];
      return fail(TypeError, where, name, "an array of URLs or a function that gives one", value);
    }),
  ),
  joinTimeoutMs: milliseconds({ low: 1, fallback: 30_000 }),
  probeTimeoutMs: milliseconds({ low: 1, fallback: 2000 }),
  refreshMs: milliseconds({ low: 1, fallback: 5000 }),
} satisfies FieldsOf<CoordinatorOptions>;

/** The pause between two tries to find the group, in milliseconds. */
const pauseMs = 100;

/**
 * The member with the lowest living rank decides, and publishes the views. It needs no other server. It is not safe in
 * a network partition: each side believes the other dead and goes on as a group of its own. The side with the later
 * coordinator has the higher versions.
 *
 * The coordinator removes a member when its failure detector believes the member dead. It removes a member at once when
 * the host of the member reports that its process is gone. The next member replaces a dead coordinator by the same
 * rules.
 *
 * @example
 * const authority = coordinatorAuthority({ seeds: ["tcp://10.0.0.1:7400", "tcp://10.0.0.2:7400"] });
 */
export function coordinatorAuthority(options: CoordinatorOptions): Authority {
  const resolved = resolveOptions("coordinatorAuthority", options, fields);
  const { seeds, joinTimeoutMs, probeTimeoutMs, refreshMs } = resolved;
  const listSeeds = async () => (typeof seeds === "function" ? seeds() : seeds);
  return {
    async join(group, candidate, context): Promise<Membership> {
      const { engine } = context;
      const host = GroupHost.of(engine);
      host.serveMembership();
      const search = new Search(group, context, listSeeds, { joinTimeoutMs, probeTimeoutMs });
      const { published, rank } = await search.place(candidate);
      const self = memberOf(published.view, rank);
      if (self === undefined)
        throw new RpcError({
          code: "internal",
          message: `group "${group}": a view came without rank ${rank}`,
        });
      return new CoordinatedMembership({ engine, host, published, self, probeTimeoutMs, refreshMs });
    },
    async observe(group, context): Promise<Observation> {
      const search = new Search(group, context, listSeeds, { joinTimeoutMs, probeTimeoutMs });
      const published = await search.view();
      return new CoordinatedObservation({ engine: context.engine, published, probeTimeoutMs, refreshMs });
    },
  };
}

interface Bounds {
  readonly joinTimeoutMs: number;
  readonly probeTimeoutMs: number;
}

/** Looks for a group by its seeds. */
class Search {
  readonly #group: string;
  readonly #engine: Engine;
  readonly #signal: AbortSignal | undefined;
  readonly #listSeeds: () => Promise<readonly string[]>;
  readonly #bounds: Bounds;
  readonly #untilMs: number;
  #lastError: unknown;
  /** A seed does not let this process in, or is not who it should be: another try would end in the same way. */
  #refusal: RpcError | undefined;

  constructor(
    group: string,
    context: AuthorityContext,
    listSeeds: () => Promise<readonly string[]>,
    bounds: Bounds,
  ) {
    this.#group = group;
    this.#engine = context.engine;
    this.#signal = context.signal;
    this.#listSeeds = listSeeds;
    this.#bounds = bounds;
    this.#untilMs = performance.now() + bounds.joinTimeoutMs;
  }

  /** The place of a candidate, in the group that is there or in one that it makes. */
  async place(candidate: Candidate): Promise<{ published: Published; rank: number }> {
    for (;;) {
      const seeds = await this.#listSeeds();
      const others = seeds.filter((url) => !candidate.urls.includes(url));
      if (candidate.creates) await this.#assertNone(others);
      const answers = await Promise.all(others.map((url) => this.#ask(url, candidate)));
      const joined = answers.find((answer) => typeof answer === "object");
      if (joined !== undefined) return joined;
      const isAlone = answers.every((answer) => answer === "nobody");
      if (candidate.creates ? isAlone : isAlone && candidate.urls.includes(seeds[0] ?? "")) {
        const { published, self } = Ledger.found(this.#group, candidate);
        return { published, rank: self.rank };
      }
      await this.#pause();
    }
  }

  /** The newest view of any seed that has one. */
  async view(): Promise<Published> {
    for (;;) {
      for (const url of await this.#listSeeds()) {
        const published = await this.#call(url, (client, timeoutMs) =>
          client.view(this.#group, { timeoutMs }),
        );
        if (typeof published === "object") return published;
      }
      await this.#pause();
    }
  }

  /** Asks for views first: a candidate that creates a group must not join one. */
  async #assertNone(seeds: readonly string[]): Promise<void> {
    for (const url of seeds) {
      const published = await this.#call(url, (client, timeoutMs) => client.view(this.#group, { timeoutMs }));
      if (typeof published === "object")
        throw new RpcError({
          code: "already_exists",
          message: `group "${this.#group}" has a member at ${url}`,
        });
    }
  }

  /** Follows referrals to other members. `nobody`: certainly no member is there. `silent`: that is not certain. */
  async #ask(
    seed: string,
    candidate: Candidate,
  ): Promise<{ published: Published; rank: number } | "nobody" | "silent"> {
    let urls: readonly string[] = [seed];
    const request = { group: this.#group, candidate };
    for (let hops = 0; hops < mostHops; hops++) {
      let next: JoinAnswer | "nobody" | "silent" = "silent";
      for (const url of urls) {
        next = await this.#call(url, (client, timeoutMs) => client.join(request, { timeoutMs }));
        if (typeof next === "object") break;
      }
      if (typeof next !== "object") return hops === 0 ? next : "silent";
      if (next.kind === "joined") return next;
      urls = next.urls;
    }
    return "silent";
  }

  async #call<T>(
    url: string,
    call: (client: Client<typeof MembershipService>, timeoutMs: number) => Promise<T>,
  ): Promise<T | "nobody" | "silent"> {
    const peer = this.#engine.lazyPeer(url, { timeoutMs: this.#bounds.probeTimeoutMs });
    try {
      // A coordinator probes the member in the way of a candidate, which takes as long again.
      return await call(peer.client(MembershipService), 3 * this.#bounds.probeTimeoutMs);
    } catch (error) {
      if (error instanceof RpcError && error.code === "failed_precondition") throw error;
      this.#lastError = error;
      if (isRefusal(error)) this.#refusal = refusedBy(this.#group, url, error);
      const isOutside =
        error instanceof RpcError && (error.code === "not_found" || error.code === "unimplemented");
      return isOutside || isNobody(error) ? "nobody" : "silent";
    } finally {
      peer.close();
    }
  }

  /**
   * Before another try.
   *
   * @throws RpcError the refusal of a seed, or `unavailable` when the time is over
   */
  async #pause(): Promise<void> {
    if (this.#refusal !== undefined) throw this.#refusal;
    const isLate = performance.now() + pauseMs > this.#untilMs;
    if (!isLate) await pause(pauseMs, undefined, { signal: this.#signal }).catch(() => undefined);
    if (!isLate && this.#signal?.aborted !== true) return;
    const last = this.#lastError instanceof Error ? this.#lastError.message : "no seed has answered";
    throw new RpcError({
      code: "unavailable",
      message: `group "${this.#group}": no member was found by the seeds: ${last}`,
      cause: this.#signal?.aborted === true ? this.#signal.reason : this.#lastError,
    });
  }
}

/** From one member that thinks another one decides to the next, before it is tried anew. */
const mostHops = 4;
