import { z } from "zod";
import { RpcError } from "../../src/base/errors/rpc-error.ts";
import type { CallOptions, ClientOptions } from "../../src/client/call-options.ts";
import { service } from "../../src/contract/service.ts";
import { unary } from "../../src/contract/unary.ts";
import { bulk, bytes } from "../../src/contract/zod-schemas.ts";
import { frames } from "./frames.ts";

// @ts-expect-error TS2561 a misspelt option
unary({ input: z.string(), timeoutMS: 5 });
// @ts-expect-error TS2353 an option there is not, beside all there are
unary({ input: z.string(), output: z.string(), errors: {}, idempotent: true, timeoutMs: 5, retries: 3 });
// @ts-expect-error TS2322 an option of the wrong type
unary({ timeoutMs: "5s" });
// @ts-expect-error TS2353 an input that is no schema
unary({ input: { id: "string" } });
// @ts-expect-error TS2353 a limit there is not
bytes({ maxLength: 4 });
// @ts-expect-error TS2353 a limit there is not
bulk("read", { maxLength: 4 });
// @ts-expect-error TS2561 a call option there is not
frames.stat({ id: "a" }, { timeout: 5 });
// @ts-expect-error TS2740 a method not made by unary()
service("a", { ping: { kind: "unary" } });
// @ts-expect-error TS2820 a code there is not
new RpcError({ code: "NOT_FOUND", message: "no" });

const patient: ClientOptions = {
  timeoutMs: 1000,
  attemptTimeoutMs: 300,
  retry: {
    attempts: 3,
    baseDelayMs: 5,
    maxDelayMs: 100,
    codes: ["unavailable"],
    budget: { ratio: 0.1, perSecond: 5 },
  },
  inherit: false,
};
const call: CallOptions = { ...patient, retry: false, signal: AbortSignal.abort() };
void call;
unary({ replay: true });
// @ts-expect-error TS2322 a number of attempts where the options belong
const short: ClientOptions = { retry: 3 };
// @ts-expect-error TS2353 an option of retries there is not
const misspelt: ClientOptions = { retry: { jitter: "full" } };
// @ts-expect-error TS2353 a budget of one call
const selfish: CallOptions = { retry: { attempts: 2, budget: { ratio: 1 } } };
// @ts-expect-error TS2820 a code there is not
const coded: ClientOptions = { retry: { codes: ["UNAVAILABLE"] } };
void [short, misspelt, selfish, coded];
