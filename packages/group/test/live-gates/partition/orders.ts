/** The order to the process of a member: to be a member, and to call others, until it is killed. */
export interface Order {
  readonly kind: "start";
  readonly rank: number;
  /** Its address in its network. */
  readonly ip: string;
  readonly etcd: string;
  readonly leaseMs: number;
  readonly periodMs: number;
  readonly evictReported: boolean;
}

/** What the process of a member says. All times are those of `monotonicMs`. */
export type Report =
  /** It runs in its network, which may be connected now. */
  | { readonly kind: "here" }
  | {
      readonly kind: "view";
      readonly atMs: number;
      readonly version: number;
      readonly ranks: readonly number[];
    }
  /** It was removed, or may have been. It closes its engine, and joins again. */
  | { readonly kind: "stopped"; readonly atMs: number; readonly why: "lost" | "excluded" }
  /** Another member has answered. */
  | { readonly kind: "call"; readonly to: number; readonly begunMs: number };
