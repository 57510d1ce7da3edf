import type { CryptoAddon } from "./crypto-addon.ts";
import type { GrantedAttributes } from "./port-report.ts";
import type { NativeScheme } from "./url.ts";

/**
 * The typed face of the native addon: free functions on numbers, exactly as `native/binding/` exports them.
 *
 * Conventions that hold for every function here:
 * - A port is named by the small integer `open` returned; a function called with an unknown or closed port returns
 *   `-EBADF` (-9).
 * - Hot functions return a status: `>= 0` is success, `< 0` is a negated libfabric error number (`-11` is FI_EAGAIN
 *   and never escapes).
 * - Cold functions return a value or a `NativeError`; native code never throws.
 * - Everything happens on the thread that opened the port, except the work of the guard (docs/design/guard.md) and of
 *   the functions that return promises. `onWake`, `onEvents` and `onLostPages` are the only calls from native code into
 *   JavaScript.
 */

/**
 * Why a cold native function failed; `code` is libfabric's positive error number, 0 where the failure is not
 * libfabric's.
 */
export interface NativeError {
  readonly failed: true;
  /**
   * The operation that failed, in the field's terms: "dlopen", "fi_getinfo", "fi_endpoint", "fi_enable", "bind
   * doorbell", …
   */
  readonly op: string;
  readonly code: number;
  /** libfabric's or the system's short name or text for `code`. */
  readonly name: string;
  /** One sentence, with the names and numbers that matter. */
  readonly message: string;
}

/** One place where libfabric was looked for. */
export interface LoadAttempt {
  readonly path: string;
  /** Empty when this attempt succeeded. */
  readonly reason: string;
}

export interface NativeLoadReport {
  readonly loaded: boolean;
  /** The file that was loaded, without links; "" if none. */
  readonly path: string;
  /** libfabric's own version, [0, 0] if none. */
  readonly version: readonly [number, number];
  readonly tried: readonly LoadAttempt[];
}

/** One candidate of a scheme's provider table, and whether it can be used on this machine. */
export interface ProviderReport {
  readonly scheme: NativeScheme;
  /** libfabric's provider name: "shm", "tcp", "net", "verbs;ofi_rxm", "efa", … */
  readonly provider: string;
  readonly available: boolean;
  /** Empty when available. */
  readonly reason: string;
}

/** One way in which a provider offers an endpoint here (fi_getinfo(3)): a device at an address. */
export interface DomainReport {
  readonly scheme: NativeScheme;
  readonly provider: string;
  /** libfabric's names: for verbs the domain is the device ("mlx5_0"), for tcp the interface. */
  readonly domain: string;
  readonly fabric: string;
  /** Numeric, without a port; "" where addresses have another form. */
  readonly address: string;
  /** "FI_MSG", "FI_RMA", … (fi_getinfo(3)). */
  readonly capabilities: readonly string[];
  /** What registering memory asks for: "FI_MR_LOCAL", … (fi_mr(3)). */
  readonly registration: readonly string[];
  /** The longest message that needs no completion. */
  readonly injectBytes: number;
  readonly maxMessageBytes: number;
  /** Extents that one read or write takes. */
  readonly extents: number;
  /** Operations that libfabric queues by default. */
  readonly sendQueueDepth: number;
  readonly receiveQueueDepth: number;
  /** What the device's port has negotiated; 0 and "" where libfabric does not say. */
  readonly mtuBytes: number;
  readonly bitsPerSecond: number;
  readonly linkState: "up" | "down" | "";
  readonly network: string;
  readonly firmware: string;
}

export interface OpenRequest {
  readonly scheme: NativeScheme;
  /**
   * tcp, verbs: a numeric IPv4 or IPv6 address to bind, "" for a wildcard. shm: unused. Other fabrics: the node, "" for
   * any.
   */
  readonly host: string;
  /** tcp, verbs: 0 picks a free port. shm: unused. Other fabrics: the service, 0 for none. */
  readonly service: number;
  /** shm: the endpoint's name, 1 to 64 of [A-Za-z0-9._-]; "" picks a unique one. tcp, verbs: unused. */
  readonly name: string;
  /** libfabric's provider name to insist on, "" lets the table choose. */
  readonly provider: string;
  /** Send slots followed by receive slots, each `slotBytes` long. Kept alive and registered until `close`. */
  readonly slab: ArrayBuffer;
  readonly slotBytes: number;
  readonly sendSlots: number;
  readonly receiveSlots: number;
  /** TCP connections that others may make; those of unknown peers, and idle ones, end first. */
  readonly maxConnections: number;
  /** How long a TCP connection of an unknown peer is kept, in milliseconds. */
  readonly maxIdleConnectionMs: number;
  /** The engine has secrets: the process lets no other copy from its memory. */
  readonly secured: boolean;
  /** See `fabric/completion-ring.ts` for the layout. Kept alive until `close`. */
  readonly ring: ArrayBuffer;
  /**
   * `mostExtents` entries of `extentWords` unsigned 64-bit words each, in the machine's order, for the next `read` or
   * `write`. An entry is region index, offset in it, bytes (at least 1), the peer's key, and the address there (its
   * base plus an offset). `register` writes the new region's key and base into the first two words. Kept alive until
   * `close`.
   */
  readonly extents: ArrayBuffer;
  /**
   * Called on the JS thread after a successful `arm`, once, when there may be something to reap, also after an absence.
   */
  readonly onWake: () => void;
}

export interface OpenedPort {
  readonly failed?: false;
  readonly port: number;
  readonly provider: string;
  /** libfabric's version, null for shm, and the provider's own. */
  readonly version: readonly [number, number] | null;
  readonly providerVersion: readonly [number, number];
  /**
   * The raw fabric address (fi_getname), as peers must `admit` it: a sockaddr for tcp and verbs, the `fi_shm://` string
   * for shm, opaque for other fabrics.
   */
  readonly address: Uint8Array;
  /** The bound numeric host ("" for shm), port number (0 for shm) and name ("" for tcp and verbs). */
  readonly host: string;
  readonly service: number;
  readonly name: string;
  /** Largest message a provider takes without a completion. */
  readonly injectBytes: number;
  /** Most bytes of one read or write, over all its extents. */
  readonly maxTransferBytes: number;
  /**
   * The bytes that a write can report to its target without a message: 8. It is 0 where the provider carries no such
   * bytes (shm, ofi_rxm) or does not report the length of the write (net).
   */
  readonly immediateBytes: number;
  /** Null for shm. */
  readonly granted: GrantedAttributes | null;
  /** True if remote addresses are virtual addresses (a region's base is not 0). */
  readonly virtualAddresses: boolean;
  /** True if the port reports a peer's death at once by a `peerGone` completion (shm). */
  readonly reportsDeath: boolean;
  /**
   * True if no peer uses the memory when `deregister` returns 0: it waits for the peers (shm, tcp), or the device stops
   * them (verbs).
   */
  readonly revokesKeys: boolean;
  /** How many peers the provider's queues have room for; 0: any number. */
  readonly maxPeers: number;
  /** True if the provider's connections are known: `connections`. */
  readonly watchesSockets: boolean;
  /** True if the gauges of connections count: `watchesSockets`, and shm. */
  readonly countsConnections: boolean;
  /** True if unchecked bytes of any peer that can connect reach the provider (docs/design/tcp.md). */
  readonly trustsStreams: boolean;
  /** True if the refusal of a transfer breaks the connection, without a reason (tcp, verbs). */
  readonly refusesSilently: boolean;
}

/** A TCP connection of the provider's. Those of a port are numbered from 1 on; `up`: both sides have said hello. */
export interface NativeConnection {
  readonly number: number;
  /**
   * The raw address at which the other side listens, as `admit` takes it. Its port is known when that side sends it.
   */
  readonly peer: Uint8Array;
  readonly inbound: boolean;
  readonly up: boolean;
}

/** A run-time change to another library, or to the process, because of a fault. */
export interface PatchReport {
  /** The name for `CINNABAR_NO_PATCHES` and `CINNABAR_PATCHES`. */
  readonly name: string;
  /** The library that has the fault, and its version: of libfabric, or of the kernel. */
  readonly library: string;
  readonly version: string;
  /** The change. */
  readonly what: string;
  /** What happens without it. */
  readonly why: string;
  /**
   * "not needed": this version does not have the fault. "off": switched off, or optional and not asked for. "ready":
   * applied as soon as a port needs it. "applied": in effect in this process.
   */
  readonly state: "not needed" | "off" | "ready" | "applied";
  /** The setting of the environment that switches it off, for example "CINNABAR_NO_PATCHES=tcp-sockets". */
  readonly switchOff: string;
  /** The setting that applies an optional patch, or one for a version outside the table; "" without such a setting. */
  readonly switchOn: string;
}

/** A process of this host, as the kernel knows it; numbers of this process's namespaces. */
export interface NativeProcess {
  readonly uid: number;
  readonly gid: number;
  readonly pid: number;
}

/** The addon's functions for memory of whole pages. */
export interface PageAddon {
  /**
   * Zeroed pages for one buffer. They return to the system when the buffer is collected and no port has it registered.
   * At most 2^32 bytes. With `hugePages` they are 2 MiB long as far as the system has such pages.
   */
  allocate(bytes: number, hugePages: boolean): ArrayBuffer | NativeError;
  /**
   * Detaches a buffer that `allocate` or `mapFile` made, so that its pages return soon and not at collection. False for
   * any other buffer.
   */
  release(buffer: ArrayBuffer): boolean;
  /** Bytes that `allocate` and `mapFile` have mapped and not yet given back, over all threads of the process. */
  allocatedBytes(): number;
}

/**
 * The addon's functions for files that hold disks. Each takes a descriptor, and returns EINVAL for wrong arguments, EMFILE
 * where the process has no descriptor left for the work.
 */
export interface FileAddon {
  /**
   * Makes a range of a file or of a block device read as zeroes, on a thread of libuv's pool (fallocate(2)). With `frees`
   * the range gives up its space, otherwise it keeps it. The length of the file stays. 0 or an error number: EOPNOTSUPP
   * where the file system cannot do so.
   */
  zeroFile(file: number, offset: number, bytes: number, frees: boolean): Promise<number> | number;
  /**
   * Where the data of a range are, on a thread of libuv's pool: begin and end of each part in turn, at most `most` numbers
   * (lseek(2), SEEK_DATA). The position of the descriptor changes. An error number where the file cannot say.
   */
  findData(
    file: number,
    offset: number,
    bytes: number,
    most: number,
  ): Promise<readonly number[] | number> | number;
  /**
   * Locks the whole file until the descriptor is closed (fcntl(2), F_OFD_SETLK), for reading with `shares`, else for
   * writing. It does not wait. 0 or an error number: EAGAIN or EACCES where a lock of another open file is in the way.
   */
  lockFile(file: number, shares: boolean): number;
  /** The size of a block device in bytes, or a negative error number. */
  deviceBytes(file: number): number;
}

/** What can be posted to a queue pair. */
export const queuePairWork = { receive: 0, send: 1, read: 2, write: 3 } as const;

/** Kinds of events, and the 32-bit words of each: kind, pair, token, status, bytes. */
export const queuePairEvent = { requested: 0, completed: 1, ended: 2, words: 5, most: 256 } as const;

/**
 * The addon's functions for connected queue pairs, `native/binding/queue_pairs.cc`, and for their memory. Listeners and
 * pairs are named by numbers. A status is 0 or more, or a negated error number of libfabric; -EINVAL (-22) for a number
 * that is not open.
 */
export interface QueuePairAddon extends PageAddon {
  /**
   * Listens at a numeric address of an RDMA device; port 0 takes a free one. Calls `onEvents` on this thread when
   * `takeQueuePairEvents` has something, and keeps the process alive, until `closeQueuePairs`. Beyond `mostPairs`
   * requests are refused. `events` has room for `most` events, and is kept. Needs a successful `load`.
   */
  listenQueuePairs(
    host: string,
    port: number,
    mostPairs: number,
    events: ArrayBuffer,
    onEvents: () => void,
  ):
    | { readonly failed?: false; readonly listener: number; readonly host: string; readonly port: number }
    | NativeError;
  /** Ends every connection, then releases all memory. */
  closeQueuePairs(listener: number): void;
  /** Pins a buffer, of at most 2^32 bytes, for messages and transfers of this side. Returns its number. */
  registerForQueuePairs(listener: number, buffer: ArrayBuffer): number;
  deregisterForQueuePairs(listener: number, memory: number): void;
  /** Makes the pair that a peer has asked for, with room for so many sends, reads and writes, and for so many receives. */
  openQueuePair(listener: number, pair: number, sends: number, receives: number): number;
  /** Accepts its connection. Receives are posted before. */
  acceptQueuePair(listener: number, pair: number): number;
  /** Ends the connection, or refuses it. No event of it follows, and no device touches memory for it. */
  closeQueuePair(listener: number, pair: number): void;
  /** `address` and `key` are of the peer's memory, for a read and a write. */
  postToQueuePair(
    listener: number,
    pair: number,
    work: number,
    memory: number,
    offset: number,
    bytes: number,
    token: number,
    address?: bigint,
    key?: number,
  ): number;
  /** Writes new events to the buffer for events, and returns their number. Further events cause another call. */
  takeQueuePairEvents(listener: number): number;
}

export interface Addon extends CryptoAddon, FileAddon, QueuePairAddon {
  /**
   * Loads libfabric once per process; later calls return the first success's report. Relative names go through the
   * system's search.
   */
  load(candidates: readonly string[]): NativeLoadReport;
  /** Probes the provider table. Needs a successful `load`. */
  providers(): ProviderReport[];
  /** What the providers that fit this libfabric offer. Needs a successful `load`. */
  domains(): DomainReport[];
  /**
   * Dumps what the kernel's RDMA subsystem has (RDMA_NLDEV_CMD_…), of one device or of all: its netlink messages in a
   * row, or a negated error number.
   */
  askRdma(command: number, device?: number): Uint8Array | number;
  /** Changes to libraries on this machine. Needs a successful `load`. */
  patches(): PatchReport[];

  open(request: OpenRequest): OpenedPort | NativeError;
  /**
   * Closes the endpoint and everything registered with it, then releases all buffers. Idempotent. No completion is
   * delivered afterwards.
   */
  close(port: number): void;

  /**
   * Makes a peer's raw address sendable and returns its index (>= 0), or a negated error. For shm it meets the peer's
   * doorbell. It fails with -ECONNREFUSED (-111) when no live process owns the name. Each successful call needs one
   * `forget`.
   */
  admit(port: number, address: Uint8Array): number;
  /**
   * The raw address for a numeric host and port, for an shm name, or for what libfabric makes of a node and a service.
   */
  addressOf(port: number, hostOrName: string, service: number): Uint8Array | NativeError;
  /**
   * While the port's thread is absent (docs/design/guard.md) the guard answers the peer behind the address. A peer that
   * sends a message with the eight bytes of `mark` at its byte 8 is sent `message`, at once and every `everyMs` (at
   * least 1) from then on, until the absence has lasted `forMs`. Returns 0, or a negated error: -EADDRINUSE (-98) for a
   * mark that is taken, -EINVAL (-22) for a message longer than `injectBytes`. Holds until `unvouch` or `forget`. With a
   * cipher of `openAead`, which belongs to the port then, each message that is sent is sealed: see
   * src/security/sealing/sealed-message.ts for the layout.
   */
  vouch(
    port: number,
    address: number,
    mark: Uint8Array,
    message: Uint8Array,
    everyMs: number,
    forMs: number,
    seal?: number,
  ): number;
  unvouch(port: number, address: number): void;
  /** Absences of the port's thread that a peer could notice, with the present one: their number and their length. */
  absences(port: number): { readonly count: number; readonly totalMs: number; readonly longestMs: number };
  /**
   * Drops the address: queued operations to it complete with FI_ECANCELED; the index is reused only after they have.
   */
  forget(port: number, address: number): void;
  /**
   * The process behind an address. The kernel noted it when the peer connected or listened (SO_PEERCRED). Null over
   * every transport but shm.
   */
  processOf(port: number, address: number): NativeProcess | null;

  /**
   * Sends `bytes` bytes at `slotOffset` of the slab. Returns 1 if the slot is free again at once (injected), 0 if a
   * `sent` completion will return it, or a negated error, when the slot stays the caller's. A full provider queue is no
   * error: the operation waits, in order, behind its predecessors to the same address.
   */
  send(port: number, address: number, slotOffset: number, bytes: number): number;

  /**
   * Pins and registers memory; returns the region's index or a negated error, and leaves key and base in the extents'
   * buffer. The memory is kept alive until `deregister` returns 0. `access`: the bits of `port.ts`. `holder`: the
   * address of the one peer that is given the key.
   */
  register(
    port: number,
    buffer: ArrayBufferLike,
    byteOffset: number,
    byteLength: number,
    access: number,
    holder?: number,
  ): number;
  /**
   * Withdraws the key at once, and the region from new transfers. Returns -EBUSY (-16) while a transfer of this port
   * still uses the memory, or a live peer may be copying to or from it (`revokesKeys`). Call again until it returns 0.
   */
  deregister(port: number, region: number): number;

  /**
   * One-sided read (get) into, or write (put) from, local regions: the first `count` entries of the extents' buffer.
   * Returns 0 when posted or queued. One `transfer` completion with `token` (0 … 2^32-1) follows, with the first error,
   * if any. Writes complete when the data is in place. A refusal on shm ends with FI_ENOKEY (266), EACCES (13) or
   * ERANGE (34), and no bytes are moved from the refused extent on. A refusal on tcp ends with ECANCELED.
   */
  read(port: number, address: number, count: number, token: number): number;
  /**
   * With a `notification` (0n … 2^64-1n) the target gets a `putNotification` completion when the data is in place. Such
   * a write is one provider operation: at most 4 extents; -EINVAL beyond, -EOPNOTSUPP (-95) where `immediateBytes` is
   * 0.
   */
  write(port: number, address: number, count: number, token: number, notification?: bigint): number;

  /**
   * Posts consumed receive slots again, retries waiting operations, and reaps completions into the ring. Spins for at
   * most `spinUs` microseconds while there are no completions. Returns the number of entries now readable in the ring.
   */
  progress(port: number, spinUs: number): number;

  /**
   * Prepares to sleep. Returns 1 + n when asleep: `onWake` follows, and the ring has n entries, all of messages that
   * have left. Returns 0 when there is work now, or a negated error.
   */
  arm(port: number): number;
  /**
   * Wakes without a callback. `watches`: the event loop keeps the descriptor, because the next `arm` follows soon. That
   * saves two system calls, but each turn of the loop looks at the descriptor.
   */
  disarm(port: number, watches: boolean): void;
  /** Whether a sleeping port keeps the process alive. Initially not. */
  setRef(port: number, keepsProcessAlive: boolean): void;

  /**
   * The open connections, in no order, and how many were made so far. Once every open connection has a higher number
   * than an earlier value of `made`, no peer of that time can write. Empty and 0 unless `watchesSockets`.
   */
  connections(port: number): { readonly open: readonly NativeConnection[]; readonly made: number };

  /**
   * Posted or waiting sends and transfers, live regions, known addresses, levels of the queues: for statistics and leak
   * checks.
   */
  gauge(port: number, which: number): number;

  /**
   * CRC-32C of a Uint8Array, continued from the checksum `seed` (0 … 2^32-1) of what lies before it; -EINVAL (-22) for
   * anything else and for an array without memory.
   */
  crc32c(bytes: Uint8Array, seed: number): number;

  /**
   * Calls `onLostPages` on this thread whenever this process has met a page that a file of `mapFile` had lost. Holds
   * for the life of the thread; a second call has no effect. Returns "", or why the watch is not possible.
   */
  watchLostPages(onLostPages: () => void): string;
  /**
   * Maps a file on a thread of libuv's pool (docs/design/mapped-files.md). The buffers have at most 2^32 bytes each, in
   * order, and `release` detaches them. With `allocates`, space for all bytes is allocated first, and the file is
   * extended to that length.
   */
  mapFile(
    file: number,
    bytes: number,
    writable: boolean,
    allocates: boolean,
  ): Promise<ArrayBuffer[] | NativeError> | NativeError;
  /** Another buffer on the file that a buffer of `mapFile` shows, from a byte of the file on. */
  showMapped(buffer: ArrayBuffer, offset: number, bytes: number): ArrayBuffer | NativeError;
  /** Whether the file has lost bytes since it was mapped. False for buffers that show no file. */
  isDamaged(buffer: ArrayBufferLike): boolean;
  /** Writes a range of the file to its storage, on a thread of libuv's pool: 0 or an error number. */
  flushMapped(buffer: ArrayBuffer, offset: number, bytes: number): Promise<number> | number;
}

/** The extents' buffer. */
export const mostExtents = 256;
export const extentWords = 5;

/** Arguments of the addon's `gauge`: the resources that a port holds, and its counters since it was opened. */
export const gauges = {
  sends: 0,
  transfers: 1,
  waiting: 2,
  regions: 3,
  addresses: 4,
  receivesUsed: 5,
  mostReceives: 6,
  completions: 7,
  mostCompletions: 8,
  registeredBytes: 9,
  connections: 10,
  turnedAway: 11,
  malformed: 12,
  shed: 13,
} as const;
