/** Where the processor time of a call goes, in the order in which a call comes by. */
export const layers = [
  "validation",
  "codec",
  "scheduling",
  "ports",
  "native",
  "event loop",
  "garbage collection",
  "benchmark",
] as const;
export type Layer = (typeof layers)[number];

/** What a profile says of a function. */
export interface Frame {
  readonly functionName: string;
  /** The file that the function was written in. */
  readonly url: string;
}

/** The layer of each room of `src/` that does one thing. All other rooms schedule. */
const byRoom: Readonly<Record<string, Layer>> = {
  contract: "validation",
  "base/options": "validation",
  wire: "codec",
  fabric: "ports",
};

/**
 * The layer that a function belongs to. "caller" for functions of the language itself, which count for the
 * layer that called them. Undefined for no work at all.
 */
export function layerOf({ functionName, url }: Frame): Layer | "caller" | undefined {
  if (functionName === "(idle)") return undefined;
  if (functionName === "(garbage collector)") return "garbage collection";
  // Outside of JavaScript: libuv, system calls, the machinery between turns.
  if (functionName === "(program)" || functionName === "(root)") return "event loop";
  if (url === "") return "caller";
  if (url.startsWith("node:")) return "event loop";
  if (url.includes("/node_modules/zod/")) return "validation";
  // V8 counts a function of the addon as the one that calls it, and those here do little else.
  if (/\/fabric\/native-port\.[jt]s$/.test(url)) return "native";
  const folder = /\/src\/([a-z-]+(?:\/[a-z-]+)*)\/[^/]+$/.exec(url)?.[1];
  if (folder === undefined) return "benchmark";
  const [room = ""] = folder.split("/");
  return byRoom[folder] ?? byRoom[room] ?? "scheduling";
}

/** What of a profile of V8's is looked at. */
export interface Profile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: Frame;
    readonly children?: readonly number[] | undefined;
  }[];
  readonly samples?: readonly number[] | undefined;
  readonly timeDeltas?: readonly number[] | undefined;
}

/** Microseconds that each layer ran itself, not those it called. */
export function timesByLayer({ nodes, samples = [], timeDeltas = [] }: Profile): Record<Layer, number> {
  const times = Object.fromEntries(layers.map((layer) => [layer, 0])) as Record<Layer, number>;
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parents = new Map(
    nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)),
  );
  const resolved = new Map<number, Layer | undefined>();
  const resolve = (id: number): Layer | undefined => {
    const node = byId.get(id);
    const layer = node === undefined ? "event loop" : layerOf(node.callFrame);
    if (layer !== "caller") return layer;
    const parent = parents.get(id);
    return parent === undefined ? "event loop" : resolve(parent);
  };
  for (const [index, id] of samples.entries()) {
    if (!resolved.has(id)) resolved.set(id, resolve(id));
    const layer = resolved.get(id);
    if (layer !== undefined) times[layer] += timeDeltas[index] ?? 0;
  }
  return times;
}
