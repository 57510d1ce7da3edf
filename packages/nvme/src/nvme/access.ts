import { type Status, status } from "./status.ts";

/**
 * How a path reaches a namespace: the states of an asymmetric access (ANA). A host sends to `optimized` paths, to
 * `non-optimized` ones where there is no other, and to the rest not at all. `inaccessible` and `change` end again,
 * `change` within ten seconds; `persistent-loss` does not.
 */
export type NvmeAccess = "optimized" | "non-optimized" | "inaccessible" | "persistent-loss" | "change";

/** The states as ANA logs have them. */
const codes: Readonly<Record<NvmeAccess, number>> = {
  optimized: 1,
  "non-optimized": 2,
  inaccessible: 3,
  "persistent-loss": 4,
  change: 15,
};

/** What commands get where the state refuses them. */
const refusals: Readonly<Partial<Record<NvmeAccess, Status>>> = {
  inaccessible: status.inaccessible,
  "persistent-loss": status.persistentLoss,
  change: status.accessChange,
};

export const accesses = Object.keys(codes) as readonly NvmeAccess[];

/** The state that a code of a log, or a status, stands for. */
export const accessOfCode = (code: number): NvmeAccess | undefined =>
  accesses.find((one) => codes[one] === code);
export const accessOfStatus = (code: number): NvmeAccess | undefined =>
  accesses.find((one) => refusals[one]?.code === code);

/** The access to one namespace through one target. */
export class Access {
  #state: NvmeAccess;
  /** How often it has changed, and once more. */
  #changes = 1;
  #underWay = 0;
  #waiting: (() => void)[] = [];

  constructor(state: NvmeAccess = "optimized") {
    this.#state = state;
  }

  get state(): NvmeAccess {
    return this.#state;
  }

  get code(): number {
    return codes[this.#state];
  }

  get changes(): number {
    return this.#changes;
  }

  /** The status of every command of the namespace, where the state refuses them. */
  get refusal(): Status | undefined {
    return refusals[this.#state];
  }

  /** False where it is the state of before. */
  set(state: NvmeAccess): boolean {
    if (state === this.#state) return false;
    this.#state = state;
    this.#changes++;
    if (this.refusal === undefined) this.#wake();
    return true;
  }

  /** Lets a device work, unless the state refuses that by now. */
  async run<T>(work: () => Promise<T>, refused: (why: Status) => T): Promise<T> {
    const why = this.refusal;
    if (why !== undefined) return refused(why);
    this.#underWay++;
    try {
      return await work();
    } finally {
      this.#underWay--;
      if (this.#underWay === 0) this.#wake();
    }
  }

  /** Resolves when no device has a command of before under way, or the state refuses none any more. */
  async quiet(): Promise<void> {
    if (this.#underWay > 0 && this.refusal !== undefined)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
