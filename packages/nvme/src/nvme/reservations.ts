import type { BlockDevice } from "../device/block-device.ts";
import { type Command, io } from "./command.ts";
import { maxTransferBytes } from "./identify.ts";
import type { QueueWork } from "./queue-work.ts";
import { type Completion, type Status, status } from "./status.ts";

/** The types of reservations, by their numbers. With the last two, every registered host holds the reservation. */
export const reservationType = {
  writeExclusive: 1,
  exclusiveAccess: 2,
  writeExclusiveRegistrants: 3,
  exclusiveAccessRegistrants: 4,
  writeExclusiveAll: 5,
  exclusiveAccessAll: 6,
} as const;

const registerAction = { add: 0, remove: 1, replace: 2 } as const;
const acquireAction = { acquire: 0, preempt: 1 } as const;
const releaseAction = { release: 0, clear: 1 } as const;
/** CPTPL: whether the state outlives the target from now on. */
const persistence = { same: 0, ends: 2, stays: 3 } as const;
/** IEKEY: the host does not prove its registration by its key. */
const ignoresKey = 1 << 3;

/** Hosts that may be registered at a time. */
const maxRegistrants = 256;
const reportBytes = { header: 64, registrant: 64 } as const;
/** The controller of a registrant, in a report: any. */
const anyController = 0xffff;

/** Hosts are named by their identifiers: 32 hexadecimal digits. */
interface State {
  /** How often registrations have changed. */
  readonly generation: number;
  /** 0: nobody holds a reservation. */
  readonly type: number;
  /** The host that acquired the reservation. */
  readonly holder: string;
  /** The registered hosts and their keys. */
  readonly registrants: ReadonlyMap<string, bigint>;
  /** The device keeps the state. */
  readonly isKept: boolean;
}

const nothing: State = { generation: 0, type: 0, holder: "", registrants: new Map(), isKept: false };
const free = { type: 0, holder: "" } as const;

const isReservation = (opcode: number): boolean =>
  opcode === io.reservationRegister ||
  opcode === io.reservationReport ||
  opcode === io.reservationAcquire ||
  opcode === io.reservationRelease;

/** The commands that a reservation against writes refuses. Flush is one of them. */
const writes = (opcode: number): boolean =>
  opcode === io.write || opcode === io.writeZeroes || opcode === io.datasetManagement || opcode === io.flush;

/** The hosts that have registered for a disk, and the reservation that one of them, or all, hold. */
export class Reservations {
  readonly #device: BlockDevice;
  #state: State;
  /** The last change that was begun. Changes are made one after another. */
  #turn: Promise<unknown> = Promise.resolve();

  /** @throws Error for a kept state that cannot be read. */
  constructor(device: BlockDevice) {
    this.#device = device;
    this.#state = keptState(device);
  }

  /** RESCAP: all types; and whether the state can be kept with the device. */
  get capabilities(): number {
    if (this.#device.isShared === true) return 0;
    return 0xfe | (this.#device.reservations === undefined ? 0 : 1);
  }

  /** The reservation of others refuses this command on blocks. */
  refuses(opcode: number, host: string): boolean {
    const { type, holder, registrants } = this.#state;
    if (type === 0) return false;
    const isOfWrites = type % 2 === 1;
    if (isOfWrites && !writes(opcode)) return false;
    return type <= reservationType.exclusiveAccess ? host !== holder : !registrants.has(host);
  }

  /** The work of a command about reservations, or the status of its fault. Undefined for other commands. */
  workOf({ opcode, entry }: Command, host: string): QueueWork | Status | undefined {
    if (!isReservation(opcode)) return undefined;
    if (this.capabilities === 0) return status.invalidOpcode;
    if (/^0*$/.test(host)) return status.sequence;
    const word = entry.readUInt32LE(40);
    const action = word & 7;
    const type = (word >>> 8) & 0xff;
    const ignores = (word & ignoresKey) !== 0;
    switch (opcode) {
      case io.reservationReport: {
        const wanted = 4 * (word + 1);
        if (wanted > maxTransferBytes) return status.invalidField;
        // Identifiers of 16 bytes fit into the extended structure alone.
        if ((entry.readUInt32LE(44) & 1) === 0) return status.hostIdentifierFormat;
        return { bytes: wanted, run: async () => ({ status: status.success, data: this.#report(wanted) }) };
      }
      case io.reservationRegister:
        return this.#change(16, (state, data) =>
          registered(state, host, {
            ...{ action, ignores, keeps: word >>> 30, canKeep: this.#device.reservations !== undefined },
            ...{ key: data.readBigUInt64LE(0), newKey: data.readBigUInt64LE(8) },
          }),
        );
      case io.reservationAcquire:
        if (ignores) return status.invalidField;
        return this.#change(16, (state, data) => {
          const keys = { key: data.readBigUInt64LE(0), preemptKey: data.readBigUInt64LE(8) };
          return acquired(state, host, { action, type, ...keys });
        });
      default:
        if (ignores) return status.invalidField;
        return this.#change(8, (state, data) =>
          released(state, host, { action, type, key: data.readBigUInt64LE(0) }),
        );
    }
  }

  /** A state holds when the device has kept it. */
  #change(bytes: number, next: (state: State, data: Buffer) => State | Status): QueueWork {
    return {
      bytes,
      run: (arrived) => {
        // The memory belongs to the queue, which uses it again.
        const data = Buffer.from(arrived);
        const done = this.#turn.then(async (): Promise<Completion> => {
          const before = this.#state;
          const after = next(before, data);
          if ("code" in after) return { status: after };
          if (after !== before && (after.isKept || before.isKept))
            await this.#device.reservations?.write(after.isKept ? textOf(after, this.#device) : undefined);
          this.#state = after;
          return { status: status.success };
        });
        const settled = done.catch((): Completion => ({ status: status.internal }));
        this.#turn = settled;
        return settled;
      },
    };
  }

  #report(bytes: number): Buffer {
    const { generation, type, holder, registrants, isKept } = this.#state;
    const whole = Buffer.alloc(reportBytes.header + reportBytes.registrant * registrants.size);
    whole.writeUInt32LE(generation, 0);
    whole.writeUInt8(type, 4);
    whole.writeUInt16LE(registrants.size, 5);
    whole.writeUInt8(isKept ? 1 : 0, 9);
    let at = reportBytes.header;
    for (const [host, key] of registrants) {
      whole.writeUInt16LE(anyController, at);
      whole.writeUInt8(isHeldBy({ type, holder, registrants }, host) ? 1 : 0, at + 2);
      whole.writeBigUInt64LE(key, at + 8);
      whole.write(host, at + 16, 16, "hex");
      at += reportBytes.registrant;
    }
    const data = Buffer.alloc(bytes);
    whole.copy(data);
    return data;
  }
}

const known = new WeakMap<BlockDevice, Reservations>();

/** The reservations of a device, the same ones for every target of this process. @throws as the constructor. */
export function reservationsOf(device: BlockDevice): Reservations {
  const found = known.get(device) ?? new Reservations(device);
  known.set(device, found);
  return found;
}

const isOfAll = (type: number): boolean => type >= reservationType.writeExclusiveAll;

const isHeldBy = (
  { type, holder, registrants }: Pick<State, "type" | "holder" | "registrants">,
  host: string,
): boolean => type !== 0 && (isOfAll(type) ? registrants.has(host) : holder === host);

/** Other registrants. A reservation that no registered host holds has ended. */
function withRegistrants(state: State, registrants: ReadonlyMap<string, bigint>): State {
  const isHeld = isOfAll(state.type) ? registrants.size > 0 : registrants.has(state.holder);
  return { ...state, registrants, generation: (state.generation + 1) >>> 0, ...(isHeld ? {} : free) };
}

function registered(
  state: State,
  host: string,
  options: {
    readonly action: number;
    readonly ignores: boolean;
    readonly keeps: number;
    readonly canKeep: boolean;
    readonly key: bigint;
    readonly newKey: bigint;
  },
): State | Status {
  const { ignores, keeps, canKeep, key, newKey } = options;
  // The kernel of Linux unregisters by a replacement with the key 0.
  const isEnd = options.action === registerAction.replace && newKey === 0n;
  const action = isEnd ? registerAction.remove : options.action;
  const own = state.registrants.get(host);
  if (keeps === 1) return status.invalidField;
  if (action === registerAction.add && newKey === 0n) return status.invalidField;
  switch (action) {
    case registerAction.add:
      if (own !== undefined && own !== newKey) return status.reservationConflict;
      break;
    case registerAction.remove:
      if (own === undefined || (!ignores && own !== key)) return status.reservationConflict;
      break;
    case registerAction.replace:
      // A host that does not prove its registration need not have one.
      if (!ignores && own !== key) return status.reservationConflict;
      break;
    default:
      return status.invalidField;
  }
  const registrants = new Map(state.registrants);
  if (action === registerAction.remove) registrants.delete(host);
  else registrants.set(host, newKey);
  if (own === undefined && registrants.size > maxRegistrants) return status.internal;
  const isKept = keeps === persistence.same ? state.isKept : keeps === persistence.stays && canKeep;
  return { ...withRegistrants(state, registrants), isKept };
}

function acquired(
  state: State,
  host: string,
  options: {
    readonly action: number;
    readonly type: number;
    readonly key: bigint;
    readonly preemptKey: bigint;
  },
): State | Status {
  const { action, type, key, preemptKey } = options;
  if (type < reservationType.writeExclusive || type > reservationType.exclusiveAccessAll)
    return status.invalidField;
  // A device cannot give a command up, so there is no "preempt and abort".
  if (action !== acquireAction.acquire && action !== acquireAction.preempt) return status.invalidField;
  const { registrants } = state;
  if (registrants.get(host) !== key) return status.reservationConflict;
  if (action === acquireAction.acquire) {
    if (state.type === 0) return { ...state, type, holder: host };
    return isHeldBy(state, host) && state.type === type ? state : status.reservationConflict;
  }
  const isOfAllNow = isOfAll(state.type);
  if (preemptKey === 0n && !isOfAllNow) return status.invalidField;
  const takesOver = isOfAllNow
    ? preemptKey === 0n
    : state.type !== 0 && registrants.get(state.holder) === preemptKey;
  const goes = (one: string, its: bigint) =>
    (preemptKey === 0n || its === preemptKey) && !(takesOver && one === host);
  const left = new Map([...registrants].filter(([one, its]) => !goes(one, its)));
  if (!takesOver && left.size === registrants.size) return status.reservationConflict;
  const next = withRegistrants(state, left);
  return takesOver ? { ...next, type, holder: host } : next;
}

function released(
  state: State,
  host: string,
  { action, type, key }: { readonly action: number; readonly type: number; readonly key: bigint },
): State | Status {
  if (action !== releaseAction.release && action !== releaseAction.clear) return status.invalidField;
  if (state.registrants.get(host) !== key) return status.reservationConflict;
  if (action === releaseAction.clear) return withRegistrants({ ...state, ...free }, new Map());
  if (!isHeldBy(state, host)) return state;
  return state.type === type ? { ...state, ...free } : status.invalidField;
}

function textOf({ generation, type, holder, registrants }: State, { uuid }: BlockDevice): string {
  const keys = [...registrants].map(([host, key]) => [host, key.toString(16)]);
  return `${JSON.stringify({ uuid, generation, type, holder, registrants: keys })}\n`;
}

/** The state that the device has kept. That of another disk, whose file was copied, does not count. */
function keptState(device: BlockDevice): State {
  const text = device.reservations?.kept;
  if (text === undefined) return nothing;
  try {
    const { uuid, generation, type, holder, registrants } = JSON.parse(text);
    if (uuid !== device.uuid) return nothing;
    const keys: [string, bigint][] = registrants.map(([host, key]: [string, string]) => [
      host,
      BigInt(`0x${key}`),
    ]);
    const isWhole =
      keys.every(([host]) => /^[0-9a-f]{32}$/.test(host)) &&
      Number.isInteger(type) &&
      type >= 0 &&
      type <= reservationType.exclusiveAccessAll &&
      Number.isInteger(generation) &&
      generation >= 0 &&
      generation < 2 ** 32 &&
      typeof holder === "string";
    if (isWhole) return { generation, type, holder, registrants: new Map(keys), isKept: true };
  } catch {
    // As a text with other fields.
  }
  throw new Error(
    `the reservations that are kept with the disk ${device.uuid} cannot be read: remove the file FILE.reservations beside it if no host relies on them`,
  );
}
