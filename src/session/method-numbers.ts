import type { ServiceTable } from "../wire/handshake.ts";

/** The numbers a peer gave its methods at the handshake. Names never travel after that, and no hash can collide. */
export class MethodNumbers {
  #services = new Map<string, ReadonlyMap<string, number>>();

  /** How often it has been told what the peer serves. */
  edition = 0;

  set(table: ServiceTable): void {
    this.#services = new Map();
    this.edition++;
    let number = 0;
    for (const [service, methods] of table) {
      const numbers = new Map<string, number>();
      for (const method of methods) numbers.set(method, number++);
      this.#services.set(service, numbers);
    }
  }

  serves(service: string): boolean {
    return this.#services.has(service);
  }

  /** The method's number, or -1 if the peer does not serve it. */
  of(service: string, method: string): number {
    return this.#services.get(service)?.get(method) ?? -1;
  }

  names(): string[] {
    return [...this.#services.keys()];
  }
}
