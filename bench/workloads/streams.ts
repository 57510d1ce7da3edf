import type { Consumer, Counted } from "../streams/consumer.ts";
import { streamContender, streamKeys } from "../streams/contenders.ts";
import type { Producer } from "../streams/producer.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";

/** A contender at work: a producer and a consumer, each a process. */
export interface StreamPair {
  readonly key: string;
  readonly title: string;
  readonly consumer: Child<Consumer>;
  end(): Promise<void>;
}

export async function startPair(key: string): Promise<StreamPair> {
  const id = `${process.pid}-${key}`;
  const { title } = streamContender(key, id);
  const module = (name: string) => new URL(`../streams/${name}.js`, import.meta.url);
  const producer = await Child.start<Producer>(`${title}, producer`, module("producer"), [key, id]);
  try {
    const address = await producer.ask("address");
    const consumer = await Child.start<Consumer>(`${title}, consumer`, module("consumer"), [
      key,
      id,
      address,
    ]);
    const end = async () => {
      await consumer.end();
      await producer.end();
    };
    return { key, title, consumer, end };
  } catch (error) {
    await producer.end();
    throw error;
  }
}

export const perSecond = ({ count, elapsedMs }: Counted): number => (count / elapsedMs) * 1000;

export const streams: Workload = {
  name: "streams",
  title: "Server streams",
  about:
    "A server sends the small object, item after item, as fast as its client reads it. Cinnabar validates each item " +
    "with zod at both ends; node:net by hand validates nothing and respects `drain`.",
  families: ["stream"],
  selection: "quick",
  seconds: 16,

  async run(run: Run): Promise<readonly Figure[]> {
    const keys = streamKeys.filter((key) => run.contenders?.includes(key) ?? true);
    const pairs: StreamPair[] = [];
    try {
      for (const key of keys) pairs.push(await startPair(key));
      for (const { consumer } of pairs)
        await warmUp(run.roundMs, async (ms) => perSecond(await consumer.ask("consume", ms)));
      const rounds = pairs.map(() => [] as number[]);
      for (let round = 1; round <= run.rounds; round++) {
        for (const [index, { consumer }] of pairs.entries())
          rounds[index]?.push(perSecond(await consumer.ask("consume", run.roundMs)));
        const told = pairs.map(
          ({ title }, index) =>
            `${title} ${Math.round(rounds[index]?.at(-1) ?? 0).toLocaleString("en-US")}/s`,
        );
        run.tell(`Items, round ${round} of ${run.rounds}: ${told.join(", ")}`);
      }
      const load = loadAverage();
      return pairs.map(
        ({ key, title }, index): Figure => ({
          name: `${key}.stream.items`,
          subject: title,
          chart: "One server stream: items",
          unit: "items/s",
          better: "more",
          rounds: rounds[index] ?? [],
          load,
        }),
      );
    } finally {
      for (const pair of pairs) await pair.end();
    }
  },
};
