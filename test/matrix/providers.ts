import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { isLong } from "./long.ts";
import { isSecured } from "./secured.ts";
import { verbsDevices } from "./verbs.ts";

/** One way for two engines to reach each other. What the tests say holds over every one of them. */
export interface Provider {
  readonly name: string;
  readonly scheme: "mem" | "shm" | "tcp" | "verbs" | "net" | "net+unix";
  /** A URL to listen at that nobody has used before. Where it was really bound, `engine.urls` tells. */
  freshUrl(): string;
  /** A URL of this scheme at which nobody listens. */
  deadUrl(): string;
  /**
   * Whether the provider reaches peers by connections, as tcp and verbs do: they break on a refused transfer, and say
   * nothing of a peer that is not there.
   */
  readonly hasConnections: boolean;
  /**
   * How long the first connect of a process may take, in milliseconds. It touches some ten thousand new pages of memory
   * where a software device is used in a guest, and each costs it a part of a millisecond, or more than one when the
   * machine is busy.
   */
  readonly connectTimeoutMs: number;
  /**
   * The bound of the heartbeat, in milliseconds. A heartbeat that is sent while a broken connection is made anew is
   * lost, and the session with it, before the owner of memory has said why it refused a transfer.
   */
  readonly heartbeatMs: number;
  /** Whether the largest bodies and transfers run here: once a scheme is enough, they are the bulk of the run time. */
  readonly carriesLargest: boolean;
}

/** Begins every name of this process's endpoints, so that what it leaves in /dev/shm can be told from others'. */
export const namePrefix = `matrix-${process.pid}-`;
let names = 0;
const freshName = () => `${namePrefix}${++names}`;

const named = (scheme: "mem" | "shm"): Provider => ({
  name: scheme,
  scheme,
  freshUrl: () => `${scheme}://${freshName()}`,
  deadUrl: () => `${scheme}://${freshName()}`,
  hasConnections: false,
  connectTimeoutMs: 20_000,
  heartbeatMs: 1000,
  carriesLargest: true,
});

// Port 1 (tcpmux) is never handed out as an ephemeral port, and nobody serves it.
const at = (scheme: "tcp" | "verbs", name: string, host: string, carriesLargest: boolean): Provider => ({
  name,
  scheme,
  freshUrl: () => `${scheme}://${host}:0`,
  deadUrl: () => `${scheme}://${host}:1`,
  hasConnections: true,
  connectTimeoutMs: 20_000,
  heartbeatMs: scheme === "verbs" ? 10_000 : 1000,
  carriesLargest,
});

/** Node's sockets keep their connections when a transfer is refused, and say at once that nobody is there. */
const socket = (scheme: "net" | "net+unix", freshUrl: () => string, deadUrl: () => string): Provider => ({
  name: scheme,
  scheme,
  freshUrl,
  deadUrl,
  hasConnections: false,
  connectTimeoutMs: 20_000,
  heartbeatMs: 1000,
  carriesLargest: scheme === "net",
});

const freshPath = () => `net+unix://${join(tmpdir(), freshName())}`;

const hasIpv6 = Object.values(networkInterfaces())
  .flat()
  .some((address) => address?.address === "::1");

/**
 * The table. shm and tcp are always in it: on a machine where they cannot be opened the tests fail, because silence
 * would read as success. verbs is in it for each device that the environment lends.
 */
export const providers: readonly Provider[] = [
  named("mem"),
  named("shm"),
  at("tcp", "tcp over IPv4", "127.0.0.1", true),
  ...(hasIpv6 ? [at("tcp", "tcp over IPv6", "[::1]", false)] : []),
  at("tcp", "tcp by host name", "localhost", false),
  socket(
    "net",
    () => "net://127.0.0.1:0",
    () => "net://127.0.0.1:1",
  ),
  socket("net+unix", freshPath, freshPath),
  ...verbsDevices.map(({ name, host }) => at("verbs", `verbs on ${name}`, host, false)),
  // Nothing is sealed over mem.
].filter(({ scheme }) => !isSecured || scheme !== "mem");

/**
 * One provider for each way through the code. However a tcp address is named, its bytes go one way, and those of
 * `net+unix` go the way of `net`: what is said of addresses is tested with every provider, all else with these, and with
 * every provider in the long form.
 */
export const transports: readonly Provider[] = isLong
  ? providers
  : providers.filter(({ scheme, carriesLargest }) => !/^(tcp|net)/.test(scheme) || carriesLargest);
