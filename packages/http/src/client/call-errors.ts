import { type AnyMethod, type RpcCode, RpcError, type Schema } from "cinnabar/contract/standard";
import { type ConnectError, connectName, statusOfCode } from "../connect-codes.ts";
import { JsonForm } from "../json/form.ts";

/** An error of this side. */
export function rpcError(code: RpcCode, message: string, method: string, cause?: unknown): RpcError {
  return new RpcError({ code, message, method, ...(cause === undefined ? {} : { cause }) });
}

/** The code of a status that came without a code: of a proxy, or of another server. */
const codeOfStatus: Readonly<Record<number, RpcCode>> = {
  400: "internal",
  401: "unauthenticated",
  403: "permission_denied",
  404: "unimplemented",
  429: "unavailable",
  502: "unavailable",
  503: "unavailable",
  504: "unavailable",
};

const codes = new Map(
  Object.keys(statusOfCode).map((code) => [connectName(code as RpcCode), code as RpcCode]),
);

/** The errors of calls of one method. */
export class CallErrors {
  readonly #method: AnyMethod;
  /** `service/method`. */
  readonly path: string;

  constructor(method: AnyMethod, path: string) {
    this.#method = method;
    this.path = path;
  }

  /** @throws RpcError `invalid_argument` for an input that does not fit. The field `except` travels otherwise. */
  async check(schema: Schema, value: unknown, except?: string): Promise<void> {
    const fault = await this.faultOf(schema, value, "input", except);
    if (fault === undefined) return;
    throw new RpcError({ code: "invalid_argument", message: fault, method: this.path, notExecuted: true });
  }

  /** What of a value does not fit. */
  async faultOf(schema: Schema, value: unknown, name: string, except?: string): Promise<string | undefined> {
    const { issues } = await schema["~standard"].validate(value);
    for (const { path = [], message } of issues ?? []) {
      const steps = path.map((step) => String(typeof step === "object" ? step.key : step));
      if (except === undefined || steps[0] !== except) return `${[name, ...steps].join(".")}: ${message}`;
    }
    return undefined;
  }

  /** The error of an answer that is no success. */
  async ofAnswer(status: number, text: string): Promise<RpcError> {
    let json: unknown;
    try {
      json = JSON.parse(text);
    } catch {
      // A proxy's page.
    }
    return this.ofJson(json, codeOfStatus[status] ?? "unknown", `the server answered with status ${status}`);
  }

  /** The error of Connect's JSON. A declared one has its data; another has a code and a message. */
  async ofJson(json: unknown, otherwise: RpcCode, words: string): Promise<RpcError> {
    const error = (typeof json === "object" && json !== null ? json : {}) as Partial<ConnectError>;
    const { reason, data, retryAfterMs } = error.details?.[0]?.debug ?? {};
    const fields = {
      code: codes.get(error.code ?? "") ?? otherwise,
      message: typeof error.message === "string" ? error.message : words,
      ...{ method: this.path, origin: "remote" as const },
      ...(typeof retryAfterMs === "number" && retryAfterMs >= 0 ? { retryAfterMs } : {}),
    };
    const declared = reason === undefined ? undefined : this.#method.errors[reason];
    if (declared === undefined) return new RpcError(fields);
    try {
      const value = new JsonForm(declared.data, "output", "data").read(data);
      const fault = await this.faultOf(declared.data, value, "data");
      return new RpcError(fault === undefined ? { ...fields, reason, data: value } : fields);
    } catch {
      return new RpcError(fields);
    }
  }
}
