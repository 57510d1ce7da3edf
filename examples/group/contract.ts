import { service, unary } from "cinnabar";
import { z } from "zod";

/** What the members of the group serve each other. */
export const Locks = service("locks.v1", {
  /** Answers when the lock is free, which it never is here. */
  acquire: unary({ input: z.string(), timeoutMs: 600_000 }),
});

/** The program's message to a member: its rank and addresses. */
export interface Assignment {
  readonly rank: number;
  readonly urls: readonly string[];
}

/** A member's message to the program. */
export type News =
  | {
      readonly type: "view";
      readonly version: number;
      readonly ranks: readonly number[];
      readonly atMs: number;
    }
  | { readonly type: "call"; readonly to: number; readonly code: string; readonly atMs: number };

/** Milliseconds on the clock that all processes of a host share. */
export const hostTimeMs = (): number => Number(process.hrtime.bigint()) / 1e6;
