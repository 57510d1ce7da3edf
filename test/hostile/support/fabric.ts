import { MemPort } from "../../../src/fabric/mem-port.ts";
import { NetPort } from "../../../src/fabric/net/net-port.ts";
import type { Port } from "../../../src/fabric/port.ts";
import { isOverNet } from "../../matrix/over-net.ts";

let names = 0;

/** A URL to listen at, of the fabric over which the attacks run. */
export const freshUrl = (): string =>
  isOverNet ? "net://127.0.0.1:0" : `mem://hostile.${process.pid}.${++names}`;

/** Its ports, whose `send` sees every message. */
export const AttackedPort: { readonly prototype: Port } = isOverNet ? NetPort : MemPort;
