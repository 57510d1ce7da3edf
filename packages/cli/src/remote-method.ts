import { nearest } from "cinnabar/options";
import {
  type AnyService,
  clientStream,
  duplexStream,
  type MethodBase,
  oneWay,
  type Peer,
  RpcError,
  type Schema,
  serverStream,
  service,
  unary,
} from "cinnabar/standard";
import {
  type DescribedMethod,
  type DescribedService,
  describeService,
  type ReflectedService,
  Reflection,
} from "cinnabar-inspect";
import { UsageError } from "./command.ts";
import { CommandError, commandError, statusOf, wrongAnswer } from "./command-error.ts";
import type { Connection } from "./connection.ts";
import { servicesIn } from "./contract-file.ts";
import { readSchema } from "./told-schema.ts";

/** A method that was named at the terminal, as the server or a contract describes it. */
export interface RemoteMethod {
  /** `service/method`, with `#` and the instance behind the service where one was named. */
  readonly path: string;
  readonly service: string;
  readonly instance: string | undefined;
  readonly method: DescribedMethod;
}

/** The service, its instance and the method in `files.v1#left/stat`. The names of services may have slashes. */
export interface MethodName {
  readonly service: string;
  readonly instance: string | undefined;
  readonly method: string;
}

/** @throws UsageError for a text without both. */
export function methodName(text: string): MethodName {
  const slash = text.lastIndexOf("/");
  if (slash < 1 || slash === text.length - 1)
    throw new UsageError(`"${text}" names no method: write SERVICE/METHOD, such as files.v1/stat`);
  return { ...serviceName(text.slice(0, slash)), method: text.slice(slash + 1) };
}

/** The service and its instance in `files.v1#left`. */
export function serviceName(text: string): Omit<MethodName, "method"> {
  const [name = "", instance] = text.split("#", 2);
  return { service: name, instance };
}

/** The server's services, by name alone. @throws CommandError with the remedy. */
export function listedServices(
  peer: Peer,
  { timeoutMs, signal }: Connection,
): Promise<readonly ReflectedService[]> {
  return told(peer.client(Reflection).list({ timeoutMs, signal }), peer.url);
}

/**
 * A service with its schemas: as a file of contracts describes it, or else the server.
 *
 * @throws UsageError for a service that neither has; CommandError with the remedy.
 */
export async function describedService(
  peer: Peer,
  connection: Connection,
  { service, instance }: Omit<MethodName, "method">,
  contract: string | undefined,
): Promise<DescribedService> {
  if (contract !== undefined) {
    const services = await servicesIn(contract);
    const found = services.find(({ name }) => name === service);
    if (found !== undefined) return describeService(found);
    throw unknownName(
      "service",
      service,
      services.map(({ name }) => name),
      contract,
    );
  }
  const { timeoutMs, signal } = connection;
  const question = instance === undefined ? { service } : { service, instance };
  try {
    return await told(peer.client(Reflection).describe(question, { timeoutMs, signal }), peer.url);
  } catch (error) {
    const { cause } = error as CommandError;
    if (!(cause instanceof RpcError) || cause.code !== "not_found") throw error;
    const asked = instance === undefined ? service : `${service}#${instance}`;
    throw unknownName("service", asked, peer.services, peer.url);
  }
}

/** The method of that name, with schemas that can be read. @throws as `describedService`, and UsageError for a method that the service does not have. */
export async function remoteMethod(
  peer: Peer,
  connection: Connection,
  name: MethodName,
  contract: string | undefined,
): Promise<RemoteMethod> {
  const found = methodOf(await describedService(peer, connection, name, contract), name);
  const { input, items, output } = found.method;
  const method = {
    ...found.method,
    ...(input === undefined ? {} : { input: readSchema(input) }),
    ...(items === undefined ? {} : { items: readSchema(items) }),
    ...(output === undefined ? {} : { output: readSchema(output) }),
  };
  return { ...found, method };
}

/** The method of a service. @throws UsageError for one that it does not have. */
export function methodOf(
  { methods }: DescribedService,
  { service, instance, method }: MethodName,
): RemoteMethod {
  const found = methods.find((each) => each.name === method);
  if (found === undefined)
    throw unknownName(
      "method",
      method,
      methods.map((each) => each.name),
      service,
    );
  const served = instance === undefined ? service : `${service}#${instance}`;
  return { path: `${served}/${method}`, service, instance, method: found };
}

function unknownName(kind: string, name: string, known: readonly string[], where: string): UsageError {
  const near = nearest(name, known);
  const names = known.length === 0 ? "nothing for this caller" : known.join(", ");
  return new UsageError(
    near === undefined
      ? `${where} has no ${kind} "${name}", it has ${names}`
      : `${where} has no ${kind} "${name}"; did you mean ${near}?`,
  );
}

/** What reflection answers. @throws CommandError with the remedy. */
async function told<T>(answer: Promise<T>, url: string): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    const message = silence(url)[error.code];
    if (message === undefined) throw commandError(error);
    throw new CommandError(message, statusOf(error.code), error);
  }
}

/** Why a server does not list its methods, by the code of its answer. */
function silence(url: string): { readonly [code in RpcError["code"]]?: string } {
  return {
    unimplemented: `${url} does not tell its methods: let its engine serve reflection(engine) of cinnabar-inspect, or give --contract FILE to call and describe`,
    permission_denied: `${url} does not let this identity ask for its methods: let security.allow permit cinnabar.reflection.v1/list and cinnabar.reflection.v1/describe, or give --contract FILE`,
  };
}

/** A schema that lets everything through: the server checks the input, and the terminal shows whatever comes. */
const anything: Schema = {
  "~standard": { version: 1, vendor: "cinnabar", validate: (value) => ({ value }) },
};

/** A function of a client that was made of a description. What it takes and gives depends on the kind of method. */
export type AnyClientFunction = (...args: unknown[]) => unknown;

/** The function of a client that calls the method. @throws CommandError for a description that no contract has. */
export function clientOf(peer: Peer, { service: name, instance, method }: RemoteMethod): AnyClientFunction {
  let made: ReturnType<typeof service>;
  try {
    made = service(name, { [method.name]: contractOf(method) });
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw new CommandError(
      `${peer.url}: ${wrongAnswer}: ${(error as Error).message}`,
      statusOf("internal"),
      error,
    );
  }
  const client = peer.client(made as AnyService, instance === undefined ? {} : { instance });
  return (client as unknown as Record<string, AnyClientFunction>)[method.name] as AnyClientFunction;
}

function contractOf({
  kind,
  input,
  output,
  errors,
  idempotent,
  replay,
  timeoutMs,
}: DescribedMethod): MethodBase {
  const sent = input === undefined ? {} : { input: anything };
  const answered = output === undefined ? {} : { output: anything };
  const limit = timeoutMs === undefined ? {} : { timeoutMs };
  const declared = {
    errors: Object.fromEntries(Object.keys(errors).map((reason) => [reason, anything])),
    idempotent,
    ...limit,
  };
  switch (kind) {
    case "unary":
      return unary({ ...sent, ...answered, ...declared, replay });
    case "oneWay":
      return oneWay({ ...sent, ...limit });
    case "serverStream":
      return serverStream({ ...sent, ...declared, output: anything });
    case "clientStream":
      return clientStream({ ...sent, ...answered, ...declared, items: anything });
    case "duplexStream":
      return duplexStream({ ...sent, ...declared, items: anything, output: anything });
    default:
      throw new CommandError(
        `the server describes a kind of method that this version does not know: ${kind}`,
      );
  }
}
