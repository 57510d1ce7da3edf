// The entry `cinnabar-http/proto`: a contract as a file of Protobuf, for Connect's clients in other languages. It needs
// no module of Node.

export { type ProtoFile, type ProtoOptions, protoOf } from "./proto/file.ts";
export { type LockedName, ProtoError, type ProtoLock } from "./proto/lock.ts";
