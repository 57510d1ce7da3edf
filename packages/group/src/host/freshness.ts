import { type AnyService, type Client, type Middleware, RpcError } from "cinnabar/standard";
import { isSameMember, type Member, memberOf, type View } from "../view/view.ts";

/** A group as this process knows it. */
export interface Presence {
  readonly view: View;
  /** Undefined for an observer. */
  readonly self: Member | undefined;
  /** Another process has seen a view with this version. */
  refresh(version: number): void;
}

/** A request has the version of the caller's view, its rank, its incarnation and the group. An answer has a version. */
const entry = "cinnabar-view";

/** How long calls to a callee omit the caller's view after the callee has answered, in milliseconds. */
const confirmedMs = 100;

/**
 * What calls to one member say of the view that their caller has: an entry of metadata, in the calls that are `isDue`. An
 * answer carries one only for a caller that is behind. Calls of an idle process are due, and so are those of one that
 * stood still: whether it is a member is found out by its first call.
 */
export class CallerStamp {
  readonly #presence: Presence;
  #stamped: View | undefined;
  #stamp = "";
  #confirmed: View | undefined;
  #confirmedUntilMs = 0;

  constructor(presence: Presence) {
    this.#presence = presence;
  }

  /** Whether the next call must say it: the callee has not accepted this view just now. */
  get isDue(): boolean {
    return this.#confirmed !== this.#presence.view || performance.now() > this.#confirmedUntilMs;
  }

  /** Around each call that is due. */
  readonly middleware: Middleware = async (call, next) => {
    const { view } = this.#presence;
    call.metadata.set(entry, this.#of(view));
    const startMs = performance.now();
    try {
      const output = await next();
      this.#confirmed = view;
      this.#confirmedUntilMs = startMs + confirmedMs;
      return output;
    } finally {
      const version = Number(call.trailers.get(entry));
      if (version > view.version) this.#presence.refresh(version);
    }
  };

  #of(view: View): string {
    const { self } = this.#presence;
    if (view !== this.#stamped)
      this.#stamp = `${view.version} ${self?.rank ?? "-"} ${self?.incarnation ?? "-"} ${view.group}`;
    this.#stamped = view;
    return this.#stamp;
  }
}

/**
 * Runs around each handler. It reports the present view to a caller that is behind, and refuses a caller that was
 * removed, whether the caller knows that or not. `find` gives the group with a name.
 */
export function fencing(find: (group: string) => Presence | undefined): Middleware {
  return (call, next) => {
    const stamp = call.metadata.get(entry);
    if (stamp === undefined) return next();
    const [, version, rank, incarnation, group = ""] = /^(\d+) (\d+|-) (\d+|-) (.*)$/.exec(stamp) ?? [];
    const presence = find(group);
    if (presence === undefined) return next();
    const { view } = presence;
    // The caller's view is newer than this process's, so whether the caller is a member is unknown.
    if (Number(version) > view.version) {
      presence.refresh(Number(version));
      return next();
    }
    if (Number(version) < view.version) call.trailers.set(entry, String(view.version));
    if (rank === "-") return next();
    const caller = { rank: Number(rank), incarnation: Number(incarnation) };
    if (isSameMember(caller, memberOf(view, caller.rank))) return next();
    throw new RpcError({
      code: "failed_precondition",
      message: `group "${group}": the caller is not in view ${view.version} as rank ${rank} any more`,
      notExecuted: true,
    });
  };
}

type Call = (...given: unknown[]) => unknown;
/** The other ways to begin a call: calls with an answer have `result`, streams with items of the client have `open`. */
const ways = ["result", "open"] as const;
type Calls = Readonly<Record<string, Call & { readonly [W in (typeof ways)[number]]?: Call }>>;

/**
 * A client that makes its calls through `stamped` while `isDue`, else through `plain`: middleware costs about as much
 * as a call. Both are clients of one service.
 */
export function stampedClient<S extends AnyService>(
  plain: Client<S>,
  stamped: Client<S>,
  isDue: () => boolean,
): Client<S> {
  const either =
    (call: Call, late: Call): Call =>
    (...given) =>
      (isDue() ? late : call)(...given);
  const client: Record<string, Call> = Object.create(null);
  for (const [name, call] of Object.entries(plain as Calls)) {
    const late = (stamped as Calls)[name] as typeof call;
    const method = either(call, late) as Call & Record<string, Call>;
    for (const way of ways) {
      const begin = call[way];
      if (begin !== undefined) method[way] = either(begin, late[way] as Call);
    }
    client[name] = method;
  }
  return Object.freeze(client) as unknown as Client<S>;
}
