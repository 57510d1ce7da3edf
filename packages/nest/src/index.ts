/// <reference types="node" preserve="true" />

// The entry `cinnabar-nest`: a transport of NestJS over Cinnabar.

export { type CinnabarRecord, cinnabarRecord, type RecordOptions } from "./call-record.ts";
export { CinnabarClient, type CinnabarClientOptions, type CinnabarPeer } from "./client.ts";
export { type ClosableApp, closeAppOnSignals } from "./close-app-on-signals.ts";
export { Call, CinnabarContext } from "./context.ts";
export { CinnabarExceptionFilter } from "./exception-filter.ts";
export { CinnabarServer, type CinnabarServerOptions, cinnabarTransport } from "./server.ts";
export {
  CinnabarService,
  type ControllerClass,
  type ControllerOf,
  type ControllerShapes,
} from "./service-decorator.ts";
