import { checkedBy, type FieldsOf, fail, resolveOptions } from "../../base/options/options.ts";
import { addonIfThere } from "../libfabric/libfabric.ts";
import { type Attributes, addressIn, nested, numberIn, parseAnswer, textIn } from "./netlink.ts";

/** RDMA_NLDEV_CMD_… and RDMA_NLDEV_ATTR_… (rdma/rdma_netlink.h). */
const command = { devices: 1, queuePairs: 10, connections: 11 } as const;
const attribute = {
  deviceIndex: 1,
  deviceName: 2,
  queuePairs: 19,
  queuePair: 20,
  number: 21,
  peerNumber: 22,
  state: 27,
  pid: 28,
  connections: 30,
  connection: 31,
  local: 33,
  remote: 34,
} as const;

/** enum rdma_cm_state of the kernel's. */
const states = [
  "idle",
  "address_query",
  "address_resolved",
  "route_query",
  "route_resolved",
  "connect",
  "disconnect",
  "address_bound",
  "listen",
  "device_removal",
  "destroying",
] as const;

/** enum ib_qp_state. */
const queuePairStates = ["reset", "init", "rtr", "rts", "sqd", "sqe", "error"] as const;

/** State of a connection in the kernel's connection manager. `connect`: being established, or established. */
export type RdmaConnectionState = (typeof states)[number];
/** State of a queue pair. "rts" (ready to send) is the working state; in "error" it is flushed and accepts nothing. */
export type QueuePairState = (typeof queuePairStates)[number];

/** An RDMA connection or listening port, as the kernel sees it now. */
export interface RdmaConnection {
  readonly device: string;
  readonly state: RdmaConnectionState;
  /** For example "10.0.0.7:7400"; "" without an address. */
  readonly local: string;
  readonly remote: string;
  /** Process id of its owner; 0 where the kernel does not report it. */
  readonly pid: number;
  /** Its queue pair; undefined for a listening port. */
  readonly queuePair: RdmaQueuePair | undefined;
}

/** The queue pair of an RDMA connection, as the kernel reports it. */
export interface RdmaQueuePair {
  readonly number: number;
  readonly peerNumber: number;
  readonly state: QueuePairState;
}

/** Options of `rdmaConnections`. */
export interface RdmaConnectionsOptions {
  /** Process id, or "all" for every process that the kernel reports. Default: this process. */
  readonly pid?: number | "all" | undefined;
}

const connectionsFields = {
  pid: checkedBy((where, name, value): number | "all" =>
    value === "all" || Number.isSafeInteger(value)
      ? (value as number | "all")
      : fail(TypeError, where, name, 'an integer or "all"', value),
  ),
} satisfies FieldsOf<RdmaConnectionsOptions>;

/**
 * Lists RDMA connections and listening ports as the kernel sees them, like `rdma resource show`. Empty where there is
 * no RDMA device or the kernel has no such interface. Costs some system calls and does not disturb the connections.
 *
 * @throws TypeError for an unknown option or a bad process number.
 */
export function rdmaConnections(options: RdmaConnectionsOptions = {}): RdmaConnection[] {
  const { pid = process.pid } = resolveOptions("rdmaConnections", options, connectionsFields);
  const addon = addonIfThere();
  if (addon === undefined) return [];
  const ask: Ask = (what, device) => {
    const answer = addon.askRdma(what, device);
    return typeof answer === "number"
      ? undefined
      : Buffer.from(answer.buffer, answer.byteOffset, answer.byteLength);
  };
  const all = connectionsFrom(ask);
  return pid === "all" ? all : all.filter((connection) => connection.pid === pid);
}

type Ask = (command: number, device?: number) => Buffer | undefined;

/** @internal With any source of answers, for tests. */
export function connectionsFrom(ask: Ask): RdmaConnection[] {
  return messagesOf(ask(command.devices)).flatMap((device) => {
    const index = numberIn(device, attribute.deviceIndex);
    if (index === undefined) return [];
    const name = textIn(device, attribute.deviceName);
    const queuePairs = new Map<number, RdmaQueuePair>();
    for (const entry of entriesOf(
      ask(command.queuePairs, index),
      attribute.queuePairs,
      attribute.queuePair,
    )) {
      const pair = queuePairIn(entry);
      queuePairs.set(pair.number, pair);
    }
    return entriesOf(ask(command.connections, index), attribute.connections, attribute.connection).map(
      (entry): RdmaConnection => ({
        device: name,
        state: states[numberIn(entry, attribute.state) ?? 0] ?? "idle",
        local: addressIn(entry, attribute.local),
        remote: addressIn(entry, attribute.remote),
        pid: numberIn(entry, attribute.pid) ?? 0,
        queuePair: queuePairs.get(numberIn(entry, attribute.number) ?? -1),
      }),
    );
  });
}

function queuePairIn(entry: Attributes): RdmaQueuePair {
  return {
    number: numberIn(entry, attribute.number) ?? 0,
    peerNumber: numberIn(entry, attribute.peerNumber) ?? 0,
    state: queuePairStates[numberIn(entry, attribute.state) ?? 0] ?? "reset",
  };
}

function messagesOf(answer: Buffer | undefined): readonly Attributes[] {
  return answer === undefined ? [] : parseAnswer(answer).messages;
}

function entriesOf(answer: Buffer | undefined, table: number, entry: number): Attributes[] {
  return messagesOf(answer)
    .flatMap((message) => nested(message, table))
    .flatMap((rows) => nested(rows, entry));
}
