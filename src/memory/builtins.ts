import type { ServedMethod } from "../session/session-host.ts";
import { builtin, firstBuiltin } from "../wire/builtin.ts";
import type { Borrowing } from "./borrowing.ts";
import { checksumMethod } from "./checksum.ts";
import { borrowMethod } from "./lending.ts";
import { noticeMethod } from "./notice.ts";
import type { Shares } from "./shares.ts";
import { nextMethod, pushMethod, stopMethod } from "./stream-methods.ts";
import { whyMethod } from "./why.ts";
import { wordMethod } from "./word.ts";

/** The built-in methods of an engine, by number from `firstBuiltin` on. */
export function builtinMethods(
  shares: Shares,
  borrowing: Borrowing,
  incarnation: bigint,
): (ServedMethod | undefined)[] {
  const methods: (ServedMethod | undefined)[] = [];
  const add = (number: number, method: ServedMethod) => {
    methods[number - firstBuiltin] = method;
  };
  add(builtin.why, whyMethod);
  add(builtin.notice, noticeMethod);
  add(builtin.word, wordMethod);
  add(builtin.checksum, checksumMethod);
  add(builtin.borrow, borrowMethod(shares, incarnation));
  add(builtin.lend, borrowing.lendMethod);
  add(builtin.next, nextMethod);
  add(builtin.push, pushMethod);
  add(builtin.stop, stopMethod);
  return methods;
}
