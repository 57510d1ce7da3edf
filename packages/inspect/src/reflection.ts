import {
  type AnyMethod,
  type AnyService,
  type CallContext,
  type Engine,
  type Implementation,
  implement,
  RpcError,
} from "cinnabar/standard";
import { describeMethod, summaryOf } from "./describe-service.ts";
import { type ReflectedService, Reflection } from "./reflection-service.ts";

/**
 * The service that lists what an engine serves, at the time of each call. Serve it beside the others.
 *
 * @example
 * const server = await Engine.open({
 *   listen: "tcp://0.0.0.0:7400",
 *   serve: (engine) => [files, reflection(engine)],
 * });
 */
export function reflection(engine: Engine): Implementation {
  return implement(Reflection, {
    list: (_, call) =>
      engine.implementations.flatMap((each): ReflectedService[] => {
        const methods = permittedOf(each, call).map(([name, method]) => summaryOf(name, method));
        return methods.length === 0 ? [] : [{ ...nameOf(each), methods }];
      }),
    describe({ service, instance }, call) {
      const each = engine.implementations.find(
        (candidate) => candidate.service.name === service && candidate.instance === instance,
      );
      const methods = each === undefined ? [] : permittedOf(each, call);
      // A caller that may call no method of the service learns nothing about it.
      if (each === undefined || methods.length === 0)
        throw new RpcError({
          code: "not_found",
          message: `there is no service "${servedName(service, instance)}" here`,
        });
      return {
        ...nameOf(each),
        methods: methods.map(([name, method]) => describeMethod(name, method)),
      };
    },
  });
}

function nameOf({ service, instance }: Implementation): Omit<ReflectedService, "methods"> {
  return instance === undefined ? { service: service.name } : { service: service.name, instance };
}

/** The methods that `allow` lets the caller call. */
function permittedOf({ service, instance }: Implementation, call: CallContext): [string, AnyMethod][] {
  const name = servedName(service.name, instance);
  return Object.entries((service as AnyService).methods).filter(([method]) =>
    call.permits(`${name}/${method}`),
  );
}

function servedName(service: string, instance: string | undefined): string {
  return instance === undefined ? service : `${service}#${instance}`;
}
