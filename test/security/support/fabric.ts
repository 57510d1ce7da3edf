import { NativePort } from "../../../src/fabric/native-port.ts";
import { NetPort } from "../../../src/fabric/net/net-port.ts";
import type { Port } from "../../../src/fabric/port.ts";
import { isOverNet } from "../../matrix/over-net.ts";

/** A URL to listen at, of the fabric that somebody on the path changes: tcp, in the stage `net` Node's sockets. */
export const anyUrl: string = isOverNet ? "net://127.0.0.1:0" : "tcp://127.0.0.1:0";

/** Its ports, whose `send` sees every message. */
export const PortOnPath: { readonly prototype: Port } = isOverNet ? NetPort : NativePort;
