import { type Status, status } from "./status.ts";

/**
 * How a path reaches a namespace: the states of an asymmetric access (ANA). A host sends to `optimized` paths, or to
 * `non-optimized` ones if there is no other. It sends nothing to the rest. `inaccessible` and `change` are temporary,
 * and `change` ends within ten seconds; `persistent-loss` is permanent.
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

/** The statuses of the states that refuse commands. */
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
  /** The number of changes, plus one. */
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

  /** The status for every command of the namespace, if the state refuses commands. */
  get refusal(): Status | undefined {
    return refusals[this.#state];
  }

  /** False if the state does not change. */
  set(state: NvmeAccess): boolean {
    if (state === this.#state) return false;
    this.#state = state;
    this.#changes++;
    if (this.refusal === undefined) this.#wake();
    return true;
  }

  /** Counts a command that a device works on, until `end`. Where the state refuses it now: the status, and no count. */
  begin(): Status | undefined {
    const why = this.refusal;
    if (why === undefined) this.#underWay++;
    return why;
  }

  end(): void {
    this.#underWay--;
    if (this.#underWay === 0) this.#wake();
  }

  /** Resolves when no device has a command under way, or the state does not refuse commands any more. */
  async quiet(): Promise<void> {
    if (this.#underWay > 0 && this.refusal !== undefined)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
