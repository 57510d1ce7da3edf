import { kindOfMethod, nameOfMethod, type ServiceTable } from "../../wire/handshake.ts";

/** The numbers that a peer gave its methods in its greeting. Names never travel after that, and no hash can collide. */
export class MethodNumbers {
  #services = new Map<string, ReadonlyMap<string, number>>();
  /** The kinds, by number. */
  #kinds: number[] = [];

  /** The number of service tables that the peer has sent. */
  edition = 0;

  set(table: ServiceTable): void {
    this.#services = new Map();
    this.#kinds = [];
    this.edition++;
    for (const [service, methods] of table) {
      const numbers = new Map<string, number>();
      for (const method of methods)
        numbers.set(nameOfMethod(method), this.#kinds.push(kindOfMethod(method)) - 1);
      this.#services.set(service, numbers);
    }
  }

  /** What the peer lacks for a method, for errors. "" when it serves the method. */
  lackOf(service: string, method: string): string {
    const methods = this.#services.get(service);
    if (methods === undefined) return `has no service "${service}"`;
    return methods.has(method) ? "" : `has no method "${service}/${method}"`;
  }

  /** The method's number, or -1 if the peer does not serve it. */
  of(service: string, method: string): number {
    return this.#services.get(service)?.get(method) ?? -1;
  }

  /** The number of a method's kind, as in `methodKindNumbers`. `number` comes from `of`. */
  kindOf(number: number): number {
    return this.#kinds[number] as number;
  }

  /** The number of the peer's services. */
  get size(): number {
    return this.#services.size;
  }

  names(): string[] {
    return [...this.#services.keys()];
  }
}
