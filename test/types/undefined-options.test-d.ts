import type { CallOptions, ClientOptions, ConnectOptions, EngineOptions, StreamCallOptions } from "cinnabar";
import type { BalanceOptions, EngineLimits, ImplementOptions, TransferOptions } from "cinnabar/options";
import type { Equal, Expect } from "./expect-type.ts";

/** The options that may be left out, and may not be undefined where `exactOptionalPropertyTypes` is set. */
type Strict<O> = {
  [K in keyof O]-?: Record<never, never> extends Pick<O, K> ? (undefined extends O[K] ? never : K) : never;
}[keyof O];

export type None = [
  Expect<Equal<Strict<BalanceOptions>, never>>,
  Expect<Equal<Strict<CallOptions>, never>>,
  Expect<Equal<Strict<ClientOptions>, never>>,
  Expect<Equal<Strict<ConnectOptions>, never>>,
  Expect<Equal<Strict<EngineLimits>, never>>,
  Expect<Equal<Strict<EngineOptions>, never>>,
  Expect<Equal<Strict<ImplementOptions>, never>>,
  Expect<Equal<Strict<StreamCallOptions>, never>>,
  Expect<Equal<Strict<TransferOptions>, never>>,
];
