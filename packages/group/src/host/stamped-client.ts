import type { AnyService, Client } from "cinnabar/standard";

type Call = (...given: unknown[]) => unknown;
/** Calls of unary methods have `result`, and streams do not. */
type Calls = Readonly<Record<string, Call & { readonly result?: Call }>>;

/**
 * A client whose calls go by way of `stamped` while `isDue`, else by `plain`: middleware costs about as much as a call.
 * Both are clients of one service.
 */
export function stampedClient<S extends AnyService>(
  plain: Client<S>,
  stamped: Client<S>,
  isDue: () => boolean,
): Client<S> {
  const client: Record<string, Call> = Object.create(null);
  for (const [name, call] of Object.entries(plain as Calls)) {
    const late = (stamped as Calls)[name] as typeof call;
    const either: Call = (...given) => (isDue() ? late : call)(...given);
    const { result } = call;
    client[name] =
      result === undefined
        ? either
        : Object.assign(either, {
            result: (...given: unknown[]) => (isDue() ? (late.result as Call) : result)(...given),
          });
  }
  return Object.freeze(client) as unknown as Client<S>;
}
