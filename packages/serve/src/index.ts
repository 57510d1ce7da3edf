/// <reference types="node" preserve="true" />

// The entry `cinnabar-serve`: components with typed configuration, and what starts and stops them.

export {
  type Application,
  ApplicationError,
  application,
  type Component,
  component,
  type Needs,
  type Running,
  type StartContext,
  type ValueOf,
  type ValuesOf,
} from "./component.ts";
export type { Sources } from "./configuration.ts";
export { type ServeOptions, serveFile } from "./serve-file.ts";
export { type StartedApplication, type StartOptions, startApplication } from "./start.ts";
