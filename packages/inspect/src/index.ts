// The entry `cinnabar-inspect`: services that report what an engine serves and what it does, and their contracts for
// clients.

export { describeService } from "./describe-service.ts";
export { inspection } from "./inspection.ts";
export {
  type EndedCall,
  type EndedCalls,
  type InspectedCalls,
  type InspectedChange,
  type InspectedEngine,
  type InspectedMethod,
  type InspectedOptions,
  type InspectedPeer,
  type InspectedProcess,
  type InspectedState,
  Inspection,
} from "./inspection-service.ts";
export { reflection } from "./reflection.ts";
export {
  type DescribedMethod,
  type DescribedService,
  type ReflectedMethod,
  type ReflectedService,
  Reflection,
} from "./reflection-service.ts";
