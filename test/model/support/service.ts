import { bulk, type CallContext, type Implementation, implement, RpcError, service, unary } from "cinnabar";
import { z } from "zod";
import {
  type Answer,
  type Books,
  type Execution,
  fillPattern,
  isPattern,
  requested,
  textOf,
} from "./books.ts";
import type { Schedule } from "./schedule.ts";

/** How long the contract's checks take: set by the schedule that runs. */
export const checks = { take: (): true | Promise<true> => true };
const taking = () => checks.take();

const input = z.object({ number: z.int(), text: z.string() });
const output = z.object({ number: z.int(), execution: z.int(), text: z.string() });
const errors = { Declined: z.object({ number: z.int() }).refine(taking) };
const work = { input: input.refine(taking), output: output.refine(taking), errors };
const fill = { input: input.extend({ into: bulk("write") }), output };
const take = { input: input.extend({ from: bulk("read") }), output };

export const Work = service("work.v1", {
  plain: unary(work),
  idempotent: unary({ ...work, idempotent: true }),
  replayed: unary({ ...work, replay: true }),
  plainFill: unary(fill),
  idempotentFill: unary({ ...fill, idempotent: true }),
  replayedFill: unary({ ...fill, replay: true }),
  plainTake: unary(take),
  idempotentTake: unary({ ...take, idempotent: true }),
  replayedTake: unary({ ...take, replay: true }),
});

type Input = { readonly number: number; readonly text: string };
type Fill = z.infer<typeof fill.input>;
type Take = z.infer<typeof take.input>;

/** What a server's handlers need beside the books. */
export interface Life {
  readonly number: number;
  /** False once its process is gone: from then on it does nothing. */
  readonly lives: boolean;
  /** Makes a call of its own for the one it serves, and waits for its end; undefined when it can make none. */
  nested?: (() => Promise<void>) | undefined;
}

const codes = [
  "unavailable",
  "resource_exhausted",
  "failed_precondition",
  "internal",
  "cancelled",
  "aborted",
] as const;

/**
 * Handlers that do all that handlers do: answer at once, late, twice or never, throw, decline, heed their signal or
 * not, and move memory meanwhile.
 */
export function workOf(schedule: Schedule, books: Books, life: Life): Implementation {
  const { loop } = schedule;

  const begin = (name: string, { number, text }: Input): { execution: Execution; answer: () => Answer } => {
    const call = books.calls[number];
    const index = books.executions.length;
    const execution: Execution = { number, life: life.number, answered: false, written: false };
    books.executions.push(execution);
    schedule.note(() => `life ${life.number} executes ${name} for call ${number}: execution ${index}`);
    if (!life.lives) books.violated(`a process that is gone has executed call ${number}`);
    if (call === undefined || text !== textOf(number, requested, call.textLength))
      books.violated(`a handler was given a wrong input for call ${number}`);
    const answer = (): Answer => {
      execution.answered = true;
      return { number, execution: index, text: textOf(number, index, call?.textLength ?? 0) };
    };
    return { execution, answer };
  };

  /** How a handler ends that has done its work. */
  const end = (
    answer: () => Answer,
    { number }: Input,
    call: CallContext & { fail?: unknown },
  ): Answer | Promise<Answer> => {
    const later = <T>(value: () => T) => {
      return new Promise<T>((resolve, reject) => {
        loop.timer(
          schedule.between(1, 60),
          () => {
            if (!life.lives) return;
            try {
              resolve(value());
            } catch (error) {
              reject(error);
            }
          },
          true,
        );
      });
    };
    const fail = (): never => {
      const code = schedule.pick(codes);
      const retryAfterMs = schedule.chance(0.3) ? schedule.between(1, 20) : undefined;
      throw new RpcError({ code, message: "as it happens", retryAfterMs });
    };
    switch (schedule.below(16)) {
      case 0:
        return new Promise(() => {});
      case 1:
        throw new Error("a bug");
      case 2:
        return later(fail);
      case 3:
        return fail();
      case 4:
        return (
          (call.fail as ((reason: string, data: unknown) => never) | undefined)?.("Declined", { number }) ??
          fail()
        );
      case 5:
        return new Promise((resolve, reject) => {
          call.signal.addEventListener("abort", () => reject(call.signal.reason), { once: true });
          loop.timer(schedule.between(1, 60), () => resolve(answer()), true);
        });
      case 6: {
        // No promise that anybody should return, but anybody can.
        const twice = {
          // biome-ignore lint/suspicious/noThenProperty: what misbehaves is what this is about
          then(resolve: (value: Answer) => void, reject: (error: unknown) => void) {
            resolve(answer());
            resolve(answer());
            reject(new Error("after the answer"));
          },
        };
        return twice as unknown as Promise<Answer>;
      }
      case 7:
        return life.nested === undefined ? later(answer) : life.nested().then(answer);
      case 8:
      case 9:
      case 10:
      case 11:
        return later(answer);
      default:
        return answer();
    }
  };

  const serve = (name: string) => (input: Input, call: CallContext) => {
    const { answer } = begin(name, input);
    return end(answer, input, call);
  };

  const options = () => ({
    chunkBytes: 4096,
    inFlight: schedule.between(1, 3),
    ...(schedule.chance(0.1) ? { timeoutMs: schedule.between(1, 20) } : {}),
  });

  const serveFill = (name: string) => async (input: Fill, call: CallContext) => {
    const { execution, answer } = begin(name, input);
    const local = new Uint8Array(input.into.byteLength);
    fillPattern(local, input.number, execution === undefined ? 0 : books.executions.indexOf(execution));
    const put = call.put(local, input.into, options());
    put.landed.then(() => books.leave(local, `what a handler put for call ${input.number}`));
    const done = put.then(
      () => {
        execution.written = true;
      },
      (error: unknown) => {
        if (schedule.chance(0.7)) throw error;
      },
    );
    // The answer of a handler that does not wait is held up until its transfers are over.
    if (schedule.chance(0.6)) await done;
    else done.catch(() => {});
    return end(answer, input, call);
  };

  const serveTake = (name: string) => async (input: Take, call: CallContext) => {
    const { answer } = begin(name, input);
    const local = new Uint8Array(input.from.byteLength);
    const get = call.get(input.from, local, options());
    get.landed.then(() => books.leave(local, `what a handler got for call ${input.number}`));
    const done = get.then(() => {
      if (!isPattern(local, input.number, requested))
        books.violated(`a handler got wrong bytes of call ${input.number}`);
    });
    if (schedule.chance(0.8)) await done;
    else done.catch(() => {});
    return end(answer, input, call);
  };

  return implement(Work, {
    plain: serve("plain"),
    idempotent: serve("idempotent"),
    replayed: serve("replayed"),
    plainFill: serveFill("plainFill"),
    idempotentFill: serveFill("idempotentFill"),
    replayedFill: serveFill("replayedFill"),
    plainTake: serveTake("plainTake"),
    idempotentTake: serveTake("idempotentTake"),
    replayedTake: serveTake("replayedTake"),
  });
}
