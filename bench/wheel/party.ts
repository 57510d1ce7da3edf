import type { Party } from "../suite/child.ts";
import { type IdleReading, measure, measureIdle, type Reading } from "./measure.ts";
import { subjects } from "./subjects.ts";

/** Deadlines in a process with nothing else in it. A subject is known by its place in subjects.ts. */
export interface WheelParty extends Party {
  measure(subject: number, pending: number): Promise<Reading>;
  measureIdle(subject: number, pending: number, forMs: number): Promise<IdleReading>;
}

export async function open(): Promise<WheelParty> {
  const at = (index: number) => {
    const subject = subjects[index];
    if (subject === undefined) throw new Error(`there is no subject ${index}`);
    return subject;
  };
  // Compiled before anything is counted.
  for (const subject of subjects) for (let i = 0; i < 3; i++) await measure(subject, 50_000);
  return {
    measure: (subject, pending) => measure(at(subject), pending),
    measureIdle: (subject, pending, forMs) => measureIdle(at(subject), pending, forMs),
    async close() {},
  };
}
