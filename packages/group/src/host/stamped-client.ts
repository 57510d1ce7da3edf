import type { AnyService, Client } from "cinnabar/standard";

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
