import { RpcError } from "cinnabar/standard";
import { type Member, makeView, type View } from "../view/view.ts";
import {
  decoded,
  type EtcdGateway,
  encoded,
  type Json,
  type KeyChange,
  type KeyValue,
  rangeOf,
} from "./gateway.ts";

/** The holder of a rank. Its key belongs to a lease, and goes when that ends. */
export interface Holder {
  readonly incarnation: number;
  readonly lease: string;
}

/** What etcd has of a group. */
export interface GroupState {
  readonly view: View | undefined;
  /** The rank of the next member that names no rank. Ranks are not used again. */
  readonly nextRank: number;
  /** When the view was written, in etcd's count; 0 without a view. */
  readonly viewRevision: bigint;
  /** Living members, by rank. */
  readonly holders: ReadonlyMap<number, Holder>;
}

/** The next view of a group, and what is written along with it. */
export interface NextView {
  readonly members: readonly Member[];
  readonly nextRank: number;
  /** A rank that is taken along with it. */
  readonly holder?: { readonly rank: number } & Holder;
  /** Ranks to release: their holders are removed. */
  readonly released?: readonly number[];
}

/** A transaction of etcd has at most 128 requests. The keys of others go with their leases. */
const maxReleased = 100;

/** The keys of one group: its view, and one key for each member that lives. */
export class GroupKeys {
  readonly #gateway: EtcdGateway;
  readonly #group: string;
  readonly #prefix: string;

  constructor(gateway: EtcdGateway, prefix: string, group: string) {
    this.#gateway = gateway;
    this.#group = group;
    this.#prefix = `${prefix}/${encodeURIComponent(group)}/`;
  }

  /** @returns the state, and the revision that it is of */
  async read(signal: AbortSignal): Promise<{ readonly state: GroupState; readonly revision: bigint }> {
    const answer = await this.#gateway.call("/v3/kv/range", rangeOf(this.#prefix), signal);
    const { header, kvs = [] } = answer as { header: { revision: string }; kvs?: readonly KeyValue[] };
    const changes = kvs.map(({ key, value = "", mod_revision }) => ({
      key: decoded(key),
      value: decoded(value),
      modRevision: BigInt(mod_revision),
    }));
    return { state: this.after(empty, changes), revision: BigInt(header.revision) };
  }

  watch(fromRevision: bigint, signal: AbortSignal): AsyncIterable<KeyChange[]> {
    return this.#gateway.watch(this.#prefix, fromRevision, signal);
  }

  /** The state after keys have changed. */
  after(state: GroupState, changes: readonly KeyChange[]): GroupState {
    let { view, nextRank, viewRevision } = state;
    const holders = new Map(state.holders);
    for (const { key, value, modRevision } of changes) {
      const name = key.slice(this.#prefix.length);
      if (name === "view" && value !== undefined) {
        ({ view, nextRank } = this.#viewOf(key, value));
        viewRevision = modRevision;
      } else if (name.startsWith("alive/")) {
        const rank = Number(name.slice("alive/".length));
        if (value === undefined) holders.delete(rank);
        else holders.set(rank, JSON.parse(value) as Holder);
      }
    }
    return { view, nextRank, viewRevision, holders };
  }

  /**
   * Writes the next view, unless another member has written one since.
   *
   * @returns whether it is written
   */
  publish(state: GroupState, next: NextView, signal: AbortSignal): Promise<boolean> {
    const view = makeView(this.#group, (state.view?.version ?? 0) + 1, next.members);
    const value = JSON.stringify({ version: view.version, nextRank: next.nextRank, members: view.members });
    return this.#write(state, next, [put(`${this.#prefix}view`, value)], signal);
  }

  /**
   * Takes a rank again for a member whose lease has ended, unless there is another view since.
   *
   * @returns whether it is taken
   */
  hold(state: GroupState, holder: { readonly rank: number } & Holder, signal: AbortSignal): Promise<boolean> {
    return this.#write(state, { holder }, [], signal);
  }

  async #write(
    state: GroupState,
    { holder, released = [] }: Pick<NextView, "holder" | "released">,
    writes: readonly Json[],
    signal: AbortSignal,
  ): Promise<boolean> {
    const success = [...writes];
    for (const rank of released.slice(0, maxReleased))
      success.push({ request_delete_range: { key: encoded(this.#alive(rank)) } });
    if (holder !== undefined) {
      const { rank, incarnation, lease } = holder;
      success.push(put(this.#alive(rank), JSON.stringify({ incarnation, lease }), lease));
    }
    const compare = {
      key: encoded(`${this.#prefix}view`),
      target: "MOD",
      result: "EQUAL",
      mod_revision: String(state.viewRevision),
    };
    const { succeeded } = await this.#gateway.call("/v3/kv/txn", { compare: [compare], success }, signal);
    return succeeded === true;
  }

  #alive(rank: number): string {
    return `${this.#prefix}alive/${rank}`;
  }

  #viewOf(key: string, value: string): { readonly view: View; readonly nextRank: number } {
    try {
      const { version, nextRank, members } = JSON.parse(value);
      // JSON has no undefined.
      const complete = (members as Member[]).map((member) => ({
        ...member,
        engine: member.engine,
        host: member.host,
        detector: member.detector,
      }));
      return { view: makeView(this.#group, version, complete), nextRank: Number(nextRank) };
    } catch (error) {
      throw new RpcError({
        code: "failed_precondition",
        message: `group "${this.#group}": the key ${key} of etcd holds no view: ${(error as Error).message}`,
        cause: error,
      });
    }
  }
}

const empty: GroupState = { view: undefined, nextRank: 0, viewRevision: 0n, holders: new Map() };

const put = (key: string, value: string, lease?: string): Json => ({
  request_put: { key: encoded(key), value: encoded(value), ...(lease !== undefined && { lease }) },
});

/** Whether the process that the view names holds its rank. */
export function lives(state: GroupState, { rank, incarnation }: Member): boolean {
  return state.holders.get(rank)?.incarnation === incarnation;
}
