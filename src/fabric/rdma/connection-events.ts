import { channels } from "../../base/observe/channels.ts";
import type { Addon } from "../libfabric/addon.ts";
import type { QueuePairAttributes } from "../libfabric/port-report.ts";
import { formatHostUrl } from "../libfabric/url.ts";
import type { NativeConnectionEvent } from "../libfabric/verbs-addon.ts";

/** The connection manager's own order (enum rdma_cm_event_type). */
const names = [
  "address_resolved",
  "address_error",
  "route_resolved",
  "route_error",
  "connect_request",
  "connect_response",
  "connect_error",
  "unreachable",
  "rejected",
  "established",
  "disconnected",
  "device_removal",
  "multicast_join",
  "multicast_error",
  "address_change",
  "timewait_exit",
] as const;

/** Event of the RDMA connection manager (rdma_get_cm_event(3)). */
export type ConnectionEventName = (typeof names)[number];

/**
 * One event of an RDMA connection, or the removal of its device. Published on the channel `cinnabar:rdma.connection`.
 */
export interface ConnectionEvent {
  readonly event: ConnectionEventName;
  /**
   * 0, or a negated error number. For `rejected`: the peer's reason (28 over InfiniBand and RoCE: the peer's program
   * rejected it).
   */
  readonly status: number;
  /** The RDMA device; "" before one is chosen. */
  readonly device: string;
  /** Local and remote address, for example "10.0.0.7:7400"; "" while unknown. */
  readonly local: string;
  readonly remote: string;
  /**
   * The peer's URL for an outgoing connection. Undefined for an incoming one, since it comes from another port than the
   * peer listens on.
   */
  readonly peer: string | undefined;
  /** Granted attributes; present with `established`. */
  readonly queuePair: QueuePairAttributes | undefined;
  /** Events lost just before this one. At most 1024 are kept while this thread computes. */
  readonly lost: number;
}

/** Where this thread's ports listen, "host:port". */
const listening = new Set<string>();

/** What the last connection on each device was granted. */
const lastGranted = new Map<string, QueuePairAttributes>();

/** "" while this thread is told, why it cannot be, or undefined as long as nobody asked. */
let obstacle: string | undefined;

/**
 * Begins to publish the connection manager's events if anybody on this thread subscribes to them by now. To be called
 * when a verbs port has been opened: the provider that makes the connections is there only then. @returns what
 * `VerbsStats.connectionEvents` says.
 */
export function watchConnections(addon: Addon): string {
  if (channels.connection.hasSubscribers && obstacle !== "")
    obstacle = addon.watchConnections(() => publishAll(addon));
  if (obstacle === undefined) return "not asked for";
  return obstacle === "" ? "published" : obstacle;
}

export function noteListening(host: string, port: number): void {
  listening.add(`${host}:${port}`);
}

/** After the close, which may have brought the last events of its connections. */
export function noteClosed(addon: Addon, host: string, port: number): void {
  if (obstacle === "") publishAll(addon);
  listening.delete(`${host}:${port}`);
}

export function lastGrantedOn(device: string): QueuePairAttributes | undefined {
  return lastGranted.get(device);
}

function publishAll(addon: Addon): void {
  let { events, lost } = addon.takeConnectionEvents();
  for (const each of events) {
    const name = names[each.event];
    // One that a later connection manager has and this list does not.
    if (name === undefined) continue;
    const event = shaped(name, each, lost);
    lost = 0;
    if (event.queuePair !== undefined) lastGranted.set(event.device, event.queuePair);
    if (channels.connection.hasSubscribers) channels.connection.publish(event);
  }
}

function shaped(
  event: ConnectionEventName,
  { status, device, local, remote, queuePair }: NativeConnectionEvent,
  lost: number,
): ConnectionEvent {
  const isAccepted = local !== null && listening.has(`${local.host}:${local.port}`);
  return {
    event,
    status,
    device,
    local: textOf(local),
    remote: textOf(remote),
    peer:
      remote === null || remote.port === 0 || isAccepted
        ? undefined
        : formatHostUrl("verbs", remote.host, remote.port),
    queuePair: queuePair ?? undefined,
    lost,
  };
}

function textOf(address: { readonly host: string; readonly port: number } | null): string {
  if (address === null) return "";
  const { host, port } = address;
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
