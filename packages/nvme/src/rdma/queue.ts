import {
  type Command,
  cqeBytes,
  isFromHost,
  isKeyed,
  isToHost,
  parseCommand,
  sgl,
  sqeBytes,
} from "../nvme/command.ts";
import {
  type Admitted,
  admittance,
  type Connected,
  type Queue,
  unprovenCommands,
} from "../nvme/controller.ts";
import { maxQueueEntries, maxTransferBytes, type Place, type TransportFacts } from "../nvme/identify.ts";
import { QueueCommands, type Transport } from "../nvme/queue-commands.ts";
import { QueueState } from "../nvme/queue-state.ts";
import {
  connectBytes,
  faultOfConnect,
  faultOfData,
  fusedBroken,
  fusedFaults,
  fusedWorkOf,
  workOf,
} from "../nvme/queue-work.ts";
import { type Completion, type Status, status, statusField } from "../nvme/status.ts";
import type { BoundedConnection, Places } from "../socket/connection-bounds.ts";
import { Credit } from "../socket/credit.ts";
import type { DataMemory, DataPart } from "./data-memory.ts";
import type { MemoryPart, PeerMemory, QueuePair, RegisteredMemory, WorkDone } from "./queue-pairs.ts";

/** Data of a command that its capsule may carry. Each place of a queue has memory for so many. */
const inCapsuleBytes = 4096;
const facts: TransportFacts = { ioInCapsuleBytes: inCapsuleBytes, isKeyed: true };
/** The parts of the memory for the first command. `data`: what Connect has in the host's memory. */
const greetingAt = { capsule: 0, data: 2048, answer: 3072, bytes: 4096 } as const;

/** A command with the data of its capsule. */
interface Arrived {
  readonly command: Command;
  /** The data are in the slot, which takes the next capsule when the command is answered. */
  readonly inCapsule: Buffer;
  readonly slot: MemoryPart;
}

/** What the queues of a server have in common. */
export interface RdmaService {
  readonly place: Place;
  /** The places for connected queues. */
  readonly places: Places;
  /** Memory for data outside of capsules. */
  readonly data: DataMemory;
  /** How much of the memory a queue has at a time. */
  readonly maxBytes: number;
  /** How long a host may leave an answer or data untaken, in milliseconds. */
  readonly stallTimeoutMs: number;
  connect(queue: Queue, command: Command, data: Buffer): Promise<Connected>;
  register(bytes: number): RegisteredMemory;
}

/** One queue of a controller: a connection of NVMe/RDMA, the target's side. */
export class RdmaQueue implements Queue, Transport<Arrived> {
  readonly facts = facts;
  readonly #pair: QueuePair;
  readonly #service: RdmaService;
  readonly #bounded: Bounded;
  readonly #state = new QueueState();
  readonly #commands: QueueCommands<Arrived>;
  readonly #credit: Credit;
  readonly #greeting: RegisteredMemory;
  /** Places for answers that are free, and answers that wait for one. */
  readonly #answers: MemoryPart[] = [];
  readonly #waiting: (() => void)[] = [];
  /** Answers and transfers that the host's device has not taken yet. */
  #untaken = 0;
  /**
   * A device repeats without end a message that the host has no receive for. Data of its reads would keep their memory.
   */
  readonly #stall: NodeJS.Timeout;

  /**
   * Accepts the connection, and waits for Connect.
   *
   * @param bounded the connection among those of the server: `admit` when the handshake is done
   * @throws RpcError where the device or the system refuses. The pair is closed then.
   */
  constructor(pair: QueuePair, service: RdmaService, bounded: Bounded) {
    this.#pair = pair;
    this.#service = service;
    this.#bounded = bounded;
    this.#commands = new QueueCommands(this, this.#state);
    this.#credit = new Credit(Math.max(service.maxBytes, maxTransferBytes));
    this.#stall = setTimeout(() => {
      if (this.#untaken > 0) this.#bounded.refuse();
    }, service.stallTimeoutMs);
    pair.onEnd = () => this.#leave();
    try {
      this.#greeting = this.#register(greetingAt.bytes);
      this.#answers.push({ memory: this.#greeting, offset: greetingAt.answer, bytes: cqeBytes });
      pair.open(maxSends, maxQueueEntries + 1);
      const bytes = sqeBytes + connectBytes;
      pair.receive({ memory: this.#greeting, offset: greetingAt.capsule, bytes }, (came) => {
        if (came === undefined) return;
        this.#greet(this.#greeting.buffer.subarray(0, came)).catch(() => this.abort());
      });
      pair.accept();
    } catch (error) {
      pair.close();
      throw error;
    }
  }

  get place(): Place {
    return this.#service.place;
  }

  get places(): Places {
    return this.#service.places;
  }

  admit(): boolean {
    return this.#bounded.admit();
  }

  get settled(): Promise<void> {
    return this.#state.settled;
  }

  /** Ends the controller. */
  end(): void {
    this.#state.controller?.end();
    this.abort();
  }

  abort(): void {
    this.#state.abort();
    this.#pair.close();
  }

  /** The first command must be Connect. Any other, and one that is refused, ends the connection after its answer. */
  async #greet(capsule: Buffer): Promise<void> {
    if (capsule.length < sqeBytes) return this.abort();
    this.#commands.count();
    const command = parseCommand(Buffer.from(capsule.subarray(0, sqeBytes)));
    const data = await this.#connectData(command, Buffer.from(capsule.subarray(sqeBytes)));
    if (this.#pair.isOver) return;
    if (!Buffer.isBuffer(data)) return this.#refuse(command, { status: data });
    const connected = await this.#service.connect(this, command, data);
    if ("refused" in connected) return this.#refuse(command, connected.refused);
    const { controller, entries, authentication } = connected;
    const atFirst = authentication === undefined ? entries : Math.min(entries, unprovenCommands);
    this.#state.connect(connected, () => {
      if (!this.#addSlots(entries - atFirst)) this.abort();
    });
    // The connection ended meanwhile, before the controller knew the queue.
    if (this.#pair.isOver) return this.#leave();
    if (!controller.checkAlive()) return this.abort();
    // The system may pin no more memory.
    if (!this.#addSlots(atFirst)) return this.#refuse(command, { status: status.controllerBusy });
    this.#answer(command, admittance(connected));
  }

  /** Takes memory for more commands of the queue: all capsules, then all answers. False: there is no memory. */
  #addSlots(count: number): boolean {
    if (count === 0) return true;
    let memory: RegisteredMemory;
    try {
      memory = this.#register(count * (slotBytes + cqeBytes));
    } catch {
      return false;
    }
    for (let slot = 0; slot < count; slot++) {
      this.#answers.push({ memory, offset: count * slotBytes + slot * cqeBytes, bytes: cqeBytes });
      this.#receive({ memory, offset: slot * slotBytes, bytes: slotBytes });
    }
    return true;
  }

  /** The data of Connect, from its capsule or from the host's memory, or the status of a Connect without data. */
  async #connectData(command: Command, inCapsule: Buffer): Promise<Buffer | Status> {
    const fault = faultOfConnect(command, inCapsule.length, isKeyed(command));
    if (fault !== undefined) return fault;
    if (command.sglKind === sgl.inCapsule) return inCapsule;
    const part = { memory: this.#greeting, offset: greetingAt.data, bytes: connectBytes };
    await this.#fetch(command, part);
    return Buffer.from(this.#greeting.buffer.subarray(part.offset, part.offset + part.bytes));
  }

  #refuse(command: Command, completion: Completion): void {
    this.#answer(command, completion, () => this.abort());
  }

  #receive(slot: MemoryPart): void {
    const { memory, offset } = slot;
    this.#pair.receive(slot, (bytes) => {
      if (bytes !== undefined) this.#take(memory.buffer.subarray(offset, offset + bytes), slot);
    });
  }

  #take(capsule: Buffer, slot: MemoryPart): void {
    const { admitted } = this.#state;
    if (admitted === undefined || capsule.length < sqeBytes) return this.abort();
    this.#commands.count();
    const command = parseCommand(Buffer.from(capsule.subarray(0, sqeBytes)));
    this.#commands.take(admitted, { command, inCapsule: capsule.subarray(sqeBytes), slot });
  }

  async execute(admitted: Admitted, { command, inCapsule }: Arrived): Promise<Completion | undefined> {
    const work = workOf(admitted, command);
    if ("code" in work) return { status: work };
    const { bytes } = work;
    const isSent = bytes > 0 && isFromHost(command);
    const isRead = bytes > 0 && isToHost(command);
    const failed: Completion = { status: status.internal };
    if (isSent) {
      const fault = this.#faultOf(command, bytes, inCapsule);
      if (fault !== undefined) return { status: fault };
      if (!isKeyed(command)) return this.#state.run(bytes, () => work.run(inCapsule), failed);
    } else if (inCapsule.length > 0) return { status: status.sglLength };
    else if (isRead) {
      if (!isKeyed(command)) return { status: status.sglType };
      if (command.bytes !== bytes) return { status: status.sglLength };
    }
    if (!isSent && !isRead) return this.#state.run(bytes, () => work.run(inCapsule), failed);
    const part = await this.#takeMemory(bytes);
    const isThere = isRead || (await this.#fetch(command, part));
    const completion = isThere
      ? await this.#state.run(bytes, () => work.run(part.buffer), failed)
      : undefined;
    const found = isRead ? completion?.data : undefined;
    if (found === undefined) {
      this.#giveBack(part);
      return completion;
    }
    if (found !== part.buffer) found.copy(part.buffer);
    // The answer is sent after the data, and so arrives after them.
    this.#pair.write(
      part,
      memoryOf(command),
      this.#timed(() => this.#giveBack(part)),
    );
    return completion;
  }

  /** The memory of both is taken at once, so that no two operations share it. */
  async executeFused(
    admitted: Admitted,
    first: Arrived,
    second: Arrived,
  ): Promise<readonly [Completion, Completion] | undefined> {
    const work = fusedWorkOf(admitted, first.command, second.command);
    if (!("run" in work)) return [{ status: work[0] }, { status: work[1] }];
    const { bytes } = work;
    const both = [first, second];
    const faults = both.map(({ command, inCapsule }) => this.#faultOf(command, bytes, inCapsule));
    if (faults.some((fault) => fault !== undefined)) return fusedFaults(faults);
    const part = await this.#takeMemory(2 * bytes);
    try {
      const data = await Promise.all(
        both.map(async ({ command, inCapsule }, index) => {
          if (!isKeyed(command)) return inCapsule;
          const half = { memory: part.memory, offset: part.offset + index * bytes, bytes };
          const isThere = await this.#fetch(command, half);
          return isThere ? part.buffer.subarray(index * bytes, (index + 1) * bytes) : undefined;
        }),
      );
      const [expected, written] = data;
      if (expected === undefined || written === undefined) return undefined;
      return await this.#state.run(bytes, () => work.run(expected, written), fusedBroken);
    } finally {
      this.#giveBack(part);
    }
  }

  respond({ command, slot }: Arrived, completion: Completion): void {
    this.#answer(command, completion, completion.isLast && (() => this.abort()), slot);
  }

  /** Memory of this queue, for as long as a device may use it. */
  #register(bytes: number): RegisteredMemory {
    const memory = this.#service.register(bytes);
    void this.settled.then(() => memory.release());
    return memory;
  }

  #leave(): void {
    clearTimeout(this.#stall);
    this.#bounded.over();
    this.#state.leave();
  }

  /** Sends a completion when there is a place for it. The command's slot takes a capsule before the host may send one. */
  #answer(command: Command, completion: Completion, sent?: () => void, slot?: MemoryPart): void {
    if (this.#pair.isOver) return;
    const part = this.#answers.pop();
    if (part === undefined) {
      this.#waiting.push(() => this.#answer(command, completion, sent, slot));
      return;
    }
    const { memory, offset } = part;
    memory.buffer.writeBigUInt64LE(completion.result ?? 0n, offset);
    memory.buffer.writeUInt16LE(this.#commands.head, offset + 8);
    memory.buffer.writeUInt16LE(0, offset + 10);
    memory.buffer.writeUInt16LE(command.id, offset + 12);
    memory.buffer.writeUInt16LE(statusField(completion.status), offset + 14);
    if (slot !== undefined) this.#receive(slot);
    const done = this.#timed(() => {
      this.#answers.push(part);
      sent?.();
      this.#waiting.shift()?.();
    });
    this.#pair.send(part, done);
  }

  /** Posted work must be done within the stall timeout. Each finished part restarts the time for the others. */
  #timed(done: WorkDone): WorkDone {
    if (this.#untaken++ === 0 && !this.#pair.isOver) this.#stall.refresh();
    return (bytes) => {
      if (--this.#untaken > 0) this.#stall.refresh();
      done(bytes);
    };
  }

  /** Reads data from the host's memory. False where the connection ends before they came. */
  #fetch(command: Command, part: MemoryPart): Promise<boolean> {
    return new Promise((resolve) => {
      const done = this.#timed((bytes) => resolve(bytes !== undefined));
      this.#pair.read(part, memoryOf(command), done);
    });
  }

  async #takeMemory(bytes: number): Promise<DataPart> {
    await this.#credit.take(bytes);
    return this.#service.data.take(bytes);
  }

  #giveBack(part: DataPart): void {
    this.#service.data.giveBack(part);
    this.#credit.giveBack(part.bytes);
  }

  #faultOf(command: Command, bytes: number, inCapsule: Buffer): Status | undefined {
    return faultOfData(command, bytes, inCapsule.length, isKeyed(command));
  }
}

type Bounded = Pick<BoundedConnection, "admit" | "refuse" | "over">;

const slotBytes = sqeBytes + inCapsuleBytes;

/**
 * As many answers as entries, and as many transfers, since a transfer is done before its answer. Transfers of commands
 * with waiting answers add as many again. libfabric offers this number by default.
 */
const maxSends = 3 * maxQueueEntries;

const memoryOf = ({ entry, sglKey }: Command): PeerMemory => ({
  address: entry.readBigUInt64LE(24),
  key: sglKey,
});
