import { RpcError } from "cinnabar/standard";
import { Newest } from "../view/newest.ts";
import { type Copy, nothing, type Put, type TakeOver } from "./variable-service.ts";

/** What a member knows of one variable, and which owner it obeys. */
export interface Known {
  readonly newest: Newest<Copy>;
  /** The term of the latest owner that has asked or sent. */
  term: number;
}

/** Names come from other members. */
const mostVariables = 65_536;

/** The copies that one member has of its group's variables, also of those that it has not opened. */
export class Copies {
  readonly #known = new Map<string, Known>();

  of(name: string): Known {
    let known = this.#known.get(name);
    if (known === undefined) {
      if (this.#known.size >= mostVariables)
        throw new RpcError({
          code: "resource_exhausted",
          message: `variable "${name}": a group has at most ${mostVariables} variables`,
        });
      known = { newest: new Newest(nothing), term: 0 };
      this.#known.set(name, known);
    }
    return known;
  }

  /** @throws RpcError `aborted` when a later owner has taken over */
  put({ name, term, version, hasValue, value }: Put): void {
    this.#obey(name, term);
    this.keep(name, { version, hasValue, value });
  }

  /** @throws RpcError `aborted` when a later owner has taken over */
  takeOver({ name, term }: TakeOver): Copy {
    return this.#obey(name, term).newest.value;
  }

  /** Keeps a version that is newer than the one that is known. */
  keep(name: string, copy: Copy): void {
    const { newest } = this.of(name);
    if (copy.version > newest.value.version) newest.set(copy);
  }

  #obey(name: string, term: number): Known {
    const known = this.of(name);
    if (term < known.term)
      throw new RpcError({
        code: "aborted",
        message: `variable "${name}": another member has taken over in view ${known.term}`,
      });
    known.term = term;
    return known;
  }

  end(): void {
    for (const { newest } of this.#known.values()) newest.end();
  }
}
