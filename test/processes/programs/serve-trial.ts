import { type Implementation, implement } from "cinnabar";
import { tell } from "./commands.ts";
import { Trial } from "./trial.ts";

const waiting = new Map<string, (value: string) => void>();
const notes = new Map<string, number[]>();

/**
 * What serves the trial, in any program; `life` is the incarnation of the engine it is served by. `nothing` does
 * `onNothing`.
 */
export function serveTrial(life: () => string, onNothing = () => {}): Implementation {
  return implement(Trial, {
    echo: ({ token }) => ({ token, life: life() }),
    nothing: onNothing,
    linger: (_, call) =>
      new Promise((_, reject) => call.signal.addEventListener("abort", () => reject(call.signal.reason))),
    hold: ({ key }, call) =>
      new Promise((_, reject) => {
        tell("held", { key });
        call.signal.addEventListener("abort", () => {
          tell("aborted", { key, code: call.signal.reason.code });
          reject(call.signal.reason);
        });
      }),
    wait: ({ key }) =>
      new Promise((resolve) => {
        waiting.set(key, resolve);
        tell("waiting", { key });
      }),
    spin({ ms }) {
      for (const until = performance.now() + ms; performance.now() < until; );
    },
    pause: ({ ms }) => new Promise((resolve) => setTimeout(resolve, ms)),
    note({ writer, number }) {
      const numbers = notes.get(writer) ?? [];
      notes.set(writer, numbers);
      return numbers.push(number);
    },
    upload: (body) => body.byteLength,
    download({ bytes, struck }) {
      if (struck !== undefined) process.kill(struck.pid, struck.signal);
      return new Uint8Array(bytes);
    },
    async fill({ into }, call) {
      const source = new Uint8Array(into.byteLength).fill(0xf1);
      for (let round = 1; ; round++) {
        await call.put(source, into);
        if (round === 1) tell("filling");
      }
    },
    async drain({ from }, call) {
      const target = new Uint8Array(from.byteLength);
      for (let round = 1; ; round++) {
        await call.get(from, target);
        if (round === 1) tell("draining");
      }
    },
    put: ({ into, value }, call) => call.put(new Uint8Array(into.byteLength).fill(value), into),
  });
}

/** What a test may ask of a program that serves the trial. */
export const trialCommands = {
  release({ key, value }: { key: string; value: string }) {
    waiting.get(key)?.(value);
    waiting.delete(key);
  },
  /** Answers all that wait, with so many characters each. */
  releaseAll(length: number) {
    for (const [key, resolve] of waiting) {
      waiting.delete(key);
      resolve("x".repeat(length));
    }
  },
  notes: (writer: string) => notes.get(writer) ?? [],
};
