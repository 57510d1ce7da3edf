// The entry `cinnabar-http/client`: clients of services for browsers. It needs no module of Node.

export {
  type HttpCallOptions,
  type HttpClient,
  type HttpClientOptions,
  httpClient,
} from "./client/http-client.ts";
