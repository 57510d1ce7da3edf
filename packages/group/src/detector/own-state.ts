import type { OwnStatus, Update } from "./message.ts";

/** What a detector says of its own member. */
export class OwnState {
  status: OwnStatus = "alive";
  incarnation: number;
  /** The last incarnation that others have declared dead. Those before the first of this process are not its own. */
  #excludedIncarnation: number;

  constructor(incarnation: number) {
    this.incarnation = incarnation;
    this.#excludedIncarnation = incarnation - 1;
  }

  /**
   * Takes another member's belief about this one. `isExcluded`: this member was declared dead, for the first time at
   * this incarnation. A death may be older than a refutation of the suspicion before it, and a member may have acted on
   * it all the same. `isWrong`: only a later incarnation corrects it.
   */
  hear({ status, incarnation }: Update): { readonly isExcluded: boolean; readonly isWrong: boolean } {
    if (this.status === "left") return { isExcluded: false, isWrong: false };
    const isExcluded = status === "dead" && incarnation > this.#excludedIncarnation;
    if (isExcluded) this.#excludedIncarnation = incarnation;
    const isSame = incarnation === this.incarnation && (status === this.status || status === "alive");
    return { isExcluded, isWrong: incarnation >= this.incarnation && !isSame };
  }
}
