/// <reference types="node" preserve="true" />

// The entry `cinnabar-http`: services reached by HTTP, in Connect's protocol with JSON.

export { type FastifyLike, fastifyPlugin } from "./fastify.ts";
export { type HttpHandler, httpHandler } from "./handler.ts";
export { type NodeHandler, toNodeHandler } from "./node.ts";
export { type OpenApiDocument, type OpenApiOptions, openApi } from "./openapi.ts";
export type {
  ClientRequest,
  HttpLimits,
  HttpOptions,
  RawMethod,
  RemoteService,
  ServicePeer,
} from "./options.ts";
export type { CorsOptions } from "./origins.ts";
