import { RpcError } from "../base/errors/rpc-error.ts";
import { describeMethod, summaryOf } from "../contract/describe-service.ts";
import { Health } from "../contract/health-service.ts";
import type { HandlersOf } from "../contract/infer.ts";
import type { AnyMethod } from "../contract/method.ts";
import { type ReflectedService, Reflection } from "../contract/reflection-service.ts";
import { type AnyService, methodPath, servedName } from "../contract/service.ts";
import type { CallContext } from "./call-context.ts";

/** What is served, as far as reflection tells it. */
interface Reflectable {
  readonly service: AnyService;
  readonly instance?: string | undefined;
}

/**
 * The handlers of `cinnabar.reflection.v1`, over what is served whenever somebody asks. Loaded when somebody does. `more`:
 * the built-in services that are on beside health and reflection.
 */
export function reflectionHandlers(
  served: readonly Reflectable[],
  more: readonly AnyService[],
): HandlersOf<typeof Reflection, CallContext> {
  const builtins: readonly Reflectable[] = [Health, Reflection, ...more].map((service) => ({ service }));
  return {
    list: (_, call) =>
      [...served, ...builtins].flatMap((each): ReflectedService[] => {
        const methods = permittedOf(each, call).map(([name, method]) => summaryOf(name, method));
        return methods.length === 0 ? [] : [{ ...nameOf(each), methods }];
      }),
    describe({ service, instance }, call) {
      const each = [...served, ...builtins].find(
        (candidate) => candidate.service.name === service && candidate.instance === instance,
      );
      const methods = each === undefined ? [] : permittedOf(each, call);
      // A caller that may call nothing of it learns nothing of it.
      if (each === undefined || methods.length === 0)
        throw new RpcError({
          code: "not_found",
          message: `there is no service "${servedName({ name: service }, instance)}" here`,
          origin: "remote",
        });
      return {
        ...nameOf(each),
        methods: methods.map(([name, method]) => describeMethod(name, method)),
      };
    },
  };
}

function nameOf({ service, instance }: Reflectable): Omit<ReflectedService, "methods"> {
  return instance === undefined ? { service: service.name } : { service: service.name, instance };
}

/** The methods that `allow` lets the caller call. */
function permittedOf({ service, instance }: Reflectable, call: CallContext): [string, AnyMethod][] {
  const served = { name: servedName(service, instance) };
  return Object.entries(service.methods).filter(([name]) => call.permits(methodPath(served, name)));
}

export { Reflection } from "../contract/reflection-service.ts";
