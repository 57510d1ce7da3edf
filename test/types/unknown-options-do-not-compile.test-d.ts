import { z } from "zod";
import { bulk } from "../../src/contract/bulk.ts";
import { bytes } from "../../src/contract/bytes.ts";
import { service } from "../../src/contract/service.ts";
import { unary } from "../../src/contract/unary.ts";
import { RpcError } from "../../src/errors/rpc-error.ts";
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
// @ts-expect-error TS2739 a method not made by unary()
service("a", { ping: { kind: "unary" } });
// @ts-expect-error TS2820 a code there is not
new RpcError({ code: "NOT_FOUND", message: "no" });
