import { jsonSchemaOf } from "cinnabar/inspect";
import {
  checkedBy,
  type FieldsOf,
  fail,
  isImplementation,
  list,
  required,
  resolveOptions,
  text,
} from "cinnabar/options";
import type { AnyMethod, AnyService, ErrorDeclaration, Implementation } from "cinnabar/standard";
import { connectName, statusOfCode } from "./connect-codes.ts";
import { holdsMemory, isVoid } from "./json/form.ts";
import { allowedField, type RawMethod, type RemoteService } from "./options.ts";

/** Options of `openApi`. Those of `httpHandler` with the same names fit as they are. */
export interface OpenApiOptions {
  /** The services, as `httpHandler` takes them, or their contracts. */
  readonly services: readonly (AnyService | Implementation | RemoteService)[];
  /** The methods that are described. */
  readonly allow: readonly (string | RawMethod)[];
  /** Those of `allow` that GET calls, too. Default: none. */
  readonly safe?: readonly string[] | undefined;
  /** The path before the name of the service. Default: none. */
  readonly prefix?: string | undefined;
  /** The name of the interface. */
  readonly title: string;
  /** The version of the interface. */
  readonly version: string;
}

/** A document of OpenAPI 3.1, as plain data. */
export interface OpenApiDocument {
  readonly openapi: "3.1.0";
  readonly info: { readonly title: string; readonly version: string };
  readonly paths: Readonly<Record<string, Json>>;
  readonly components: { readonly schemas: Readonly<Record<string, Json>> };
}

type Json = Readonly<Record<string, unknown>>;

const serviceOf = checkedBy((where, name, value): AnyService => {
  const given = (value ?? {}) as Partial<AnyService & Implementation & RemoteService>;
  const service = isImplementation(value) ? value.service : (given.service ?? given);
  if (typeof service.name === "string" && typeof service.methods === "object") return service as AnyService;
  return fail(TypeError, where, name, "a service, or what httpHandler takes", value);
});

const openApiFields = {
  services: required(list(serviceOf, 1)),
  allow: required(list(allowedField, 1)),
  safe: list(text(3, 300)),
  prefix: text(0, 300),
  title: required(text(1, 300)),
  version: required(text(1, 100)),
} satisfies FieldsOf<OpenApiOptions>;

/**
 * Describes methods as OpenAPI 3.1: their inputs, outputs and declared errors by the JSON Schemas of the contract.
 * Examples are those of the schemas, such as `z.string().meta({ examples: ["Ada"] })`.
 *
 * @throws TypeError for bad options, and for a name that is no method.
 *
 * @example
 * await writeFile("openapi.json", JSON.stringify(openApi({ ...options, title: "Files", version: "1.0.0" })));
 */
export function openApi(options: OpenApiOptions): OpenApiDocument {
  const {
    services,
    allow,
    safe = [],
    prefix = "",
    title,
    version,
  } = resolveOptions("openApi", options, openApiFields);
  const methods = new Map<string, readonly [service: string, name: string, method: AnyMethod]>();
  for (const service of services)
    for (const [name, method] of Object.entries(service.methods))
      methods.set(`${service.name}/${name}`, [service.name, name, method]);
  const schemas: Record<string, Json> = { Error: errorSchema };
  const paths: Record<string, Json> = {};
  for (const entry of allow) {
    const path = entry.method;
    const found = methods.get(path);
    if (found === undefined) throw new TypeError(`openApi: allow names "${path}", which no service has`);
    const [service, name, method] = found;
    const described = new DescribedMethod(service, name, method, schemas, entry);
    paths[`${prefix}/${path}`] = {
      ...(safe.includes(path) ? { get: described.get() } : {}),
      ...(entry.body === undefined ? { post: described.post() } : { put: described.put() }),
    };
  }
  return { openapi: "3.1.0", info: { title, version }, paths, components: { schemas } };
}

const reference = (name: string): Json => ({ $ref: `#/components/schemas/${name}` });
const json = (schema: Json): Json => ({ "application/json": { schema } });

/** Messages of a stream, whose form OpenAPI cannot describe. */
const enveloped = (schema: Json): Json => ({ "application/connect+json": { schema } });

/** Plain bytes. */
const octets: Json = { "application/octet-stream": { schema: {} } };

/** The schema of an object without some of its fields. */
function without(schema: Json, names: readonly (string | undefined)[]): Json {
  const { properties, required, ...others } = schema;
  const isLeft = (name: string) => !names.includes(name);
  const left = Object.entries((properties ?? {}) as Json).filter(([name]) => isLeft(name));
  return {
    ...others,
    ...(properties === undefined ? {} : { properties: Object.fromEntries(left) }),
    ...(Array.isArray(required) ? { required: required.filter(isLeft) } : {}),
  };
}

/** Connect's error without declared data. */
const errorSchema: Json = {
  type: "object",
  properties: {
    code: {
      type: "string",
      enum: Object.keys(statusOfCode).map((code) => connectName(code as keyof typeof statusOfCode)),
    },
    message: { type: "string" },
    details: { type: "array", items: { type: "object" } },
  },
  required: ["code"],
};

class DescribedMethod {
  readonly #id: string;
  readonly #service: string;
  readonly #name: string;
  readonly #method: AnyMethod;
  readonly #schemas: Record<string, Json>;
  readonly #entry: RawMethod;

  constructor(
    service: string,
    name: string,
    method: AnyMethod,
    schemas: Record<string, Json>,
    entry: RawMethod,
  ) {
    this.#entry = entry;
    // Components have no slash in their names.
    this.#id = `${service.replaceAll("/", "_")}.${name}`;
    this.#service = service;
    this.#name = name;
    this.#method = method;
    this.#schemas = schemas;
  }

  post(): Json {
    const { input, items } = this.#method;
    if (!isVoid(items)) {
      const parameters = isVoid(input)
        ? []
        : [{ name: "message", in: "query", content: json(this.#input()) }];
      const content = enveloped(this.#component("sent", jsonSchemaOf(items, "input")));
      return {
        ...this.#common("post", parameters),
        requestBody: { required: true, content },
        responses: this.#responses(),
      };
    }
    const body = isVoid(input) ? {} : { requestBody: { required: true, content: json(this.#input()) } };
    return { ...this.#common("post"), ...body, responses: this.#responses() };
  }

  get(): Json {
    const message = { name: "message", in: "query", content: json(this.#input()) };
    const required = { ...message, required: true };
    const parameters = isVoid(this.#method.input) ? [] : [required];
    return { ...this.#common("get", parameters), responses: this.#responses() };
  }

  /** The body is the request's; all other fields are in the query. */
  put(): Json {
    const message = { name: "message", in: "query", content: json(this.#input()) };
    return {
      ...this.#common("put", [message]),
      requestBody: { required: true, content: octets },
      responses: this.#responses(),
    };
  }

  #common(verb: string, parameters: readonly Json[] = []): Json {
    const timeout = {
      name: "connect-timeout-ms",
      in: "header",
      description: "the deadline in milliseconds",
      schema: { type: "integer", minimum: 1 },
    };
    return {
      operationId: verb !== "get" ? this.#id : `${this.#id}.${verb}`,
      summary: this.#name,
      tags: [this.#service],
      parameters: [...parameters, timeout],
    };
  }

  #input(): Json {
    const { body, answer, offset } = this.#entry;
    const schema = jsonSchemaOf(this.#method.input, "input");
    const { [answer ?? ""]: answered } = (schema.properties ?? {}) as Readonly<Record<string, Json>>;
    // The answer may be a field of the output, and the input may have one of the same name.
    const memory = answered !== undefined && holdsMemory(answered) ? answer : undefined;
    return this.#component("input", without(schema, [body, memory, offset]));
  }

  #responses(): Json {
    const { kind, output, errors } = this.#method;
    const hasNone = isVoid(output) || this.#entry.answer !== undefined;
    const schema = hasNone
      ? { type: "object" }
      : this.#component(kind === "serverStream" ? "item" : "output", jsonSchemaOf(output, "output"));
    const success = !isVoid(this.#method.items)
      ? { description: "the output", content: enveloped(schema) }
      : kind === "serverStream"
        ? {
            description: "the items as events",
            content: { "text/event-stream": { schema } },
          }
        : this.#entry.answer === undefined
          ? { description: "the output", content: json(schema) }
          : { description: "the bytes", content: octets };
    const byStatus = new Map<number, [reason: string, declared: ErrorDeclaration][]>();
    for (const [reason, declared] of Object.entries(errors)) {
      const status = statusOfCode[declared.code];
      byStatus.set(status, [...(byStatus.get(status) ?? []), [reason, declared]]);
    }
    const failures = [...byStatus].map(([status, declared]) => [
      String(status),
      {
        description: declared.map(([reason]) => reason).join(", "),
        // The status has other errors of the same code, too.
        content: json({ anyOf: [...declared.map((one) => this.#error(...one)), reference("Error")] }),
      },
    ]);
    const others = { description: "any other error", content: json(reference("Error")) };
    return { "200": success, ...Object.fromEntries(failures), default: others };
  }

  #error(reason: string, { code, data }: ErrorDeclaration): Json {
    const detail = {
      type: "object",
      properties: {
        type: { const: "google.protobuf.Struct" },
        value: { type: "string", contentEncoding: "base64" },
        debug: {
          type: "object",
          properties: {
            reason: { const: reason },
            ...(isVoid(data) ? {} : { data: this.#component(reason, jsonSchemaOf(data, "output")) }),
          },
          required: ["reason", ...(isVoid(data) ? [] : ["data"])],
        },
      },
      required: ["type", "value", "debug"],
    };
    return {
      type: "object",
      properties: {
        code: { const: connectName(code) },
        message: { type: "string" },
        details: { type: "array", items: detail, minItems: 1, maxItems: 1 },
      },
      required: ["code", "details"],
    };
  }

  /** A schema as a component, so that its references lead into itself. */
  #component(part: string, schema: Json): Json {
    const name = `${this.#id}.${part}`;
    this.#schemas[name] = withReferences(schema, `#/components/schemas/${name}`) as Json;
    return reference(name);
  }
}

/** A schema whose references within itself begin at `root`. */
function withReferences(part: unknown, root: string): unknown {
  if (Array.isArray(part)) return part.map((each) => withReferences(each, root));
  if (typeof part !== "object" || part === null) return part;
  return Object.fromEntries(
    Object.entries(part).map(([key, value]) =>
      key === "$ref" && typeof value === "string" && value.startsWith("#")
        ? [key, root + value.slice(1)]
        : [key, withReferences(value, root)],
    ),
  );
}
