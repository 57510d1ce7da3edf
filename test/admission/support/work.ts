import { implement, service, unary } from "cinnabar";
import { z } from "zod";
import { type Deferred, deferred } from "../../matrix/wait.ts";

/** A service whose calls the test holds, and one beside it that answers at once. */
export const Work = service("work.v1", {
  hold: unary({ input: z.string(), output: z.string(), idempotent: true }),
  /** Executed at most once, however often it is tried. */
  book: unary({ input: z.string(), output: z.string(), replay: true }),
});

export const Other = service("other.v1", { ping: unary({ output: z.string() }) });

export type AdmissionOptions = NonNullable<Parameters<typeof implement>[2]>;

/** Handlers that wait for the test, by the name they were called with. */
export class Held {
  /** In the order they began. */
  readonly began: string[] = [];
  readonly signals = new Map<string, AbortSignal>();
  most = 0;
  readonly #gates = new Map<string, Deferred<void>>();
  readonly #open = new Set<string>();
  #running = 0;
  #all = false;

  get running(): number {
    return this.#running;
  }

  /** Lets that one end, now or when it begins; without a name all. */
  end(...names: string[]): void {
    for (const name of names.length > 0 ? names : [...this.#gates.keys()]) {
      this.#open.add(name);
      this.#gates.get(name)?.resolve();
    }
  }

  /** Lets everything end that comes from now on, too. */
  endAll(): void {
    this.#all = true;
    this.end();
  }

  async hold(name: string, signal: AbortSignal): Promise<string> {
    this.began.push(name);
    this.signals.set(name, signal);
    this.most = Math.max(this.most, ++this.#running);
    const gate = deferred();
    this.#gates.set(name, gate);
    if (this.#all || this.#open.has(name)) gate.resolve();
    await gate.promise;
    this.#running--;
    return name;
  }

  work(admission?: AdmissionOptions) {
    return implement(
      Work,
      {
        hold: (name, { signal }) => this.hold(name, signal),
        book: (name, { signal }) => this.hold(name, signal),
      },
      admission,
    );
  }
}

export const other = (admission?: AdmissionOptions) => implement(Other, { ping: () => "pong" }, admission);
