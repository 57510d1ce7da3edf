import {
  type Client,
  clientStream,
  duplexStream,
  type Implementation,
  implement,
  oneWay,
  RpcError,
  type StreamCallOptions,
  serverStream,
  service,
} from "cinnabar";
import { z } from "zod";
import type { Books } from "./books.ts";
import type { Schedule } from "./schedule.ts";
import type { Life } from "./service.ts";

const item = z.object({ n: z.int(), text: z.string() });
const input = z.object({ number: z.int(), to: z.int() });

export const Flow = service("flow.v1", {
  down: serverStream({ input, output: item, idempotent: true }),
  /** Answers how many items came; below zero when it has not waited for all. */
  up: clientStream({ input, items: item, output: z.int() }),
  both: duplexStream({ input, items: item, output: item }),
  tell: oneWay({ input: z.object({ number: z.int() }) }),
});

type Item = z.infer<typeof item>;
type Kind = "down" | "up" | "both" | "tell";

/** Streams and one-way calls of a schedule. The sender counts, and the receiver compares with that count. */
export class Flows {
  /** Those that have not ended for their caller. */
  readonly open = new Set<number>();
  #made = 0;
  /** How often each one-way call was executed. */
  readonly #told = new Map<number, number>();
  readonly #schedule: Schedule;
  readonly #books: Books;

  constructor(schedule: Schedule, books: Books) {
    this.#schedule = schedule;
    this.#books = books;
  }

  // ---- servers ----------------------------------------------------------------------------------------------------

  serve(life: Life): Implementation {
    const flows = this;
    return implement(Flow, {
      async *down({ number, to }) {
        yield* flows.#send(number, to, life);
      },
      async up(items, { input: { number, to } }) {
        const patience = flows.#schedule.chance(0.2) ? flows.#schedule.below(10) : to;
        let count = 0;
        for await (const each of items) {
          flows.#check(`stream ${number} at its server`, each, count++);
          await flows.#dawdle(life);
          if (count > patience) return -count;
        }
        return count;
      },
      async *both(items, { input: { number } }) {
        let count = 0;
        for await (const each of items) {
          flows.#check(`stream ${number} at its server`, each, count++);
          yield each;
        }
      },
      tell({ number }) {
        const times = (flows.#told.get(number) ?? 0) + 1;
        flows.#told.set(number, times);
        if (times > 1) flows.#books.violated(`one-way call ${number} was executed ${times} times`);
        if (flows.#schedule.chance(0.2)) throw new Error("a bug");
      },
    });
  }

  async *#send(number: number, to: number, life: Life | undefined): AsyncGenerator<Item> {
    const schedule = this.#schedule;
    for (let n = 0; n < to; n++) {
      await this.#dawdle(life);
      if (schedule.chance(0.01))
        throw new RpcError({ code: "unavailable", message: `stream ${number} had bad luck` });
      yield { n, text: "y".repeat(schedule.pick([0, 0, 0, 10, 3000, 9000])) };
    }
  }

  /** Mostly at once. A process that is gone does nothing any more. */
  #dawdle(life: Life | undefined): Promise<void> | undefined {
    if (life !== undefined && !life.lives) return new Promise(() => {});
    if (!this.#schedule.chance(0.1)) return undefined;
    return new Promise((resolve) => this.#schedule.loop.timer(this.#schedule.between(1, 30), resolve, true));
  }

  // ---- clients ----------------------------------------------------------------------------------------------------

  make(client: Client<typeof Flow>, name: string, life: Life): void {
    const schedule = this.#schedule;
    const number = this.#made++;
    const kind = schedule.pick(["down", "down", "up", "both", "tell"] as const);
    const controller = new AbortController();
    const to = schedule.below(30);
    const options: StreamCallOptions = {
      timeoutMs: schedule.between(5, 300),
      idleTimeoutMs: schedule.pick([20, 200, false]),
      window: { items: schedule.between(1, 8), bytes: schedule.pick([4096, 20_000]) },
      signal: controller.signal,
      ...(schedule.chance(0.3) ? { retry: { attempts: 3, baseDelayMs: 2 } } : {}),
    };
    if (schedule.chance(0.02)) controller.abort(new Error("not even begun"));
    else if (schedule.chance(0.15))
      schedule.loop.timer(schedule.between(1, 100), () => controller.abort(new Error("no more")), true);
    schedule.note(() => `${name} makes stream ${number} of ${kind} to ${to}`);
    this.open.add(number);
    const ended = (how: string) => {
      schedule.note(() => `stream ${number} ends: ${how}`);
      if (!this.open.delete(number)) this.#books.violated(`stream ${number} has ended twice`);
    };
    this.#run(client, kind, number, to, options, life).then(ended, (error: unknown) => {
      if (!(error instanceof RpcError)) this.#books.violated(`stream ${number} failed with ${String(error)}`);
      ended(String(error));
    });
  }

  async #run(
    client: Client<typeof Flow>,
    kind: Kind,
    number: number,
    to: number,
    options: StreamCallOptions,
    life: Life,
  ): Promise<string> {
    const asked = { number, to };
    if (kind === "tell") {
      const { timeoutMs = 100 } = options;
      await client.tell({ number }, { timeoutMs });
      return "has left";
    }
    if (kind === "up") {
      const count = await client.up(asked, this.#send(number, to, life), options);
      if (count >= 0 && count !== to)
        this.#books.violated(`${count} of ${to} items of stream ${number} came, and its end`);
      return `answered ${count}`;
    }
    const stream =
      kind === "down"
        ? client.down(asked, options)
        : client.both(asked, this.#send(number, to, life), options);
    const patience = this.#schedule.chance(0.2) ? this.#schedule.below(to + 1) : to + 1;
    let count = 0;
    for await (const each of stream) {
      this.#check(`stream ${number} at its client`, each, count++);
      await this.#dawdle(undefined);
      if (count > patience) break;
    }
    if (count <= patience && count !== to)
      this.#books.violated(`stream ${number} ended after ${count} of ${to} items without an error`);
    if (!(await stream.next()).done) this.#books.violated(`an item of stream ${number} came after its end`);
    return `read ${count}`;
  }

  #check(where: string, { n }: Item, expected: number): void {
    if (n !== expected) this.#books.violated(`${where}: item ${n} came, ${expected} was next`);
  }
}
