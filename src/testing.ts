/// <reference lib="esnext.disposable" preserve="true" />
/// <reference types="node" preserve="true" />

// The entry `cinnabar/testing`: a server and a client in one thread, for tests of services and of their callers.

export { type Connected, connected } from "./engine/connected.ts";
