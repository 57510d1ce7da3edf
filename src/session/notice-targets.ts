import { grants } from "../bulk/region-kind.ts";
import type { Port } from "../fabric/port.ts";
import type { LentRegion } from "./lent-regions.ts";

const low = (key: bigint): number => Number(BigInt.asUintN(32, key));

/** The length of a notice that a put carries. */
export const noticeBytes = 8;

/** What a put carries to the owner of the loan by `key`: the lower half of the key above the number. */
export function noticeData(key: bigint, n: number): bigint {
  return (BigInt.asUintN(32, key) << 32n) | BigInt(n);
}

/**
 * What is lent over one port, in all its sessions, by the lower half of the loan's key: notices that come with a put's data name it so, and say
 * nothing of the session. The keys are random, so another's loan must be guessed, as its key.
 */
export class NoticeTargets {
  readonly #loans = new Map<number, readonly LentRegion[]>();

  private constructor() {}

  /** The port's one. */
  static of(port: Port): NoticeTargets {
    let targets = byPort.get(port);
    if (targets === undefined) {
      targets = new NoticeTargets();
      byPort.set(port, targets);
    }
    return targets;
  }

  /** How many loans can be told of. */
  get size(): number {
    return this.#loans.size;
  }

  add(key: bigint, lent: LentRegion): void {
    this.#loans.set(low(key), [...this.#find(low(key)), lent]);
  }

  delete(key: bigint, lent: LentRegion): void {
    const left = this.#find(low(key)).filter((other) => other !== lent);
    if (left.length > 0) this.#loans.set(low(key), left);
    else this.#loans.delete(low(key));
  }

  /**
   * Tells the region of a put that has landed; "", or what is wrong with the notice. Nobody hears an answer: what a reader has not been told, its
   * queue says itself.
   */
  deliver(data: bigint, bytes: number): string {
    const [lent, ...others] = this.#find(Number(data >> 32n));
    if (lent === undefined) return "a notice for no region that is lent";
    if (others.length > 0) {
      for (const { region } of [lent, ...others]) region.loseNotice();
      return "a notice that may be for several regions";
    }
    const { region, access } = lent;
    if (!grants(access, "write") || bytes === 0 || bytes > region.byteLength)
      return "a notice of a put that cannot have been";
    if (!region.notify({ n: low(data), bytes })) region.loseNotice();
    return "";
  }

  #find(token: number): readonly LentRegion[] {
    return this.#loans.get(token) ?? [];
  }
}

const byPort = new WeakMap<Port, NoticeTargets>();
