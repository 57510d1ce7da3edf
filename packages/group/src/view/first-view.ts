import { RpcError } from "cinnabar/standard";
import type { View } from "./view.ts";

/**
 * The first of these views that the predicate accepts.
 *
 * @throws RpcError `cancelled` when they end before: `signal` aborted, or the group was closed
 */
export async function firstView(
  views: AsyncIterable<View>,
  accepts: (view: View) => boolean,
  group: string,
  signal?: AbortSignal,
): Promise<View> {
  for await (const view of views) if (accepts(view)) return view;
  const why = signal?.aborted === true ? "the signal aborted" : "it was closed";
  throw new RpcError({
    code: "cancelled",
    message: `group "${group}": ${why} before a view was accepted`,
    ...(signal?.aborted === true && { cause: signal.reason }),
  });
}
