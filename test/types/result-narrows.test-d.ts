import type { RpcError } from "../../src/base/errors/rpc-error.ts";
import type { CallResult } from "../../src/contract/infer.ts";
import type { Equal, Expect } from "./expect-type.ts";
import { frames, type Methods } from "./frames.ts";

// A result is the value or the error, told apart by `ok`; the error by its reason.
export async function describeStat(): Promise<string> {
  const result = await frames.stat.result({ id: "a" }, { timeoutMs: 5 });
  // @ts-expect-error TS2339 no value before `ok` was asked
  result.value;
  if (result.ok) {
    // @ts-expect-error TS2339 no error in a success
    result.error;
    return String(result.value.bytes);
  }
  const any: RpcError = result.error;
  switch (result.error.reason) {
    case "NotFound":
      // @ts-expect-error TS2339 another reason's data
      result.error.data.load;
      return result.error.data.id;
    case "Busy":
      return result.error.data.load.toFixed(1);
    case "Gone": {
      const nothing: void = result.error.data;
      return String(nothing);
    }
    case undefined:
      // An error the contract does not declare: the code says what happened, and its data is nobody's promise.
      return result.error.code === "unavailable" ? any.message : String(result.error.data);
    // @ts-expect-error TS2678 a reason the method does not declare
    case "Missing":
      return "";
  }
}

// `switch` over the reasons is exhaustive: nothing is left behind it.
export function exhaustive(result: CallResult<Methods["stat"]>): number {
  if (result.ok) return 0;
  switch (result.error.reason) {
    case "NotFound":
      return 1;
    case "Busy":
      return 2;
    case "Gone":
      return 3;
    case undefined:
      return 4;
  }
}

// A method without declared errors fails without a reason.
export async function plain(): Promise<void> {
  const result = await frames.ping.result();
  if (result.ok) return;
  const reason: undefined = result.error.reason;
  const code: RpcError["code"] = result.error.code;
  void [reason, code];
}

export type Value = Expect<Equal<Extract<CallResult<Methods["ping"]>, { ok: true }>["value"], void>>;
