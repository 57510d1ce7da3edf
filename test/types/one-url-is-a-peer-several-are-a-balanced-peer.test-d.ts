import type { RpcError } from "../../src/base/errors/rpc-error.ts";
import type { BalancedPeer } from "../../src/connect/balanced-peer.ts";
import type { Peer } from "../../src/connect/peer.ts";
import { staticResolver } from "../../src/connect/resolver.ts";
import type { Engine } from "../../src/engine/engine.ts";
import type { Equal, Expect } from "./expect-type.ts";

declare const engine: Engine;
declare const peer: Peer;

const one = engine.connect("mem://a");
export type _One = Expect<Equal<typeof one, Promise<Peer>>>;
const several = engine.connect(["mem://a", "mem://b"], { policy: "leastInFlight" });
export type _Several = Expect<Equal<typeof several, Promise<BalancedPeer>>>;
const found = engine.connect(staticResolver(["mem://a"]), { policy: { pick: ([first]) => first as never } });
export type _Found = Expect<Equal<typeof found, Promise<BalancedPeer>>>;

// @ts-expect-error TS2769 one peer has nobody to be chosen from
engine.connect("mem://a", { policy: "roundRobin" });
// @ts-expect-error TS2769 a policy there is not
engine.connect(["mem://a"], { policy: "random" });

peer.on("lost", (detail) => {
  type _Reason = Expect<Equal<typeof detail.reason, RpcError>>;
});
peer.on("back", (detail) => {
  type _After = Expect<Equal<typeof detail.after, "suspect" | "lost">>;
});
// @ts-expect-error TS2345 an event there is not
peer.on("gone", () => {});
