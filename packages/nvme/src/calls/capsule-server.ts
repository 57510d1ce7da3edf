import { randomBytes } from "node:crypto";
import {
  type CallContext,
  type Implementation,
  implement,
  type RemoteRegionLike,
  RpcError,
} from "cinnabar/standard";
import {
  type Command,
  isFromHost,
  isToHost,
  parseCommand,
  sgl,
  sqeBytes,
  uint64At,
} from "../nvme/command.ts";
import { type Admitted, admittance, type Connected, type Queue } from "../nvme/controller.ts";
import { messageFacts } from "../nvme/identify.ts";
import type { FusedWork } from "../nvme/io-command.ts";
import { QueueState } from "../nvme/queue-state.ts";
import {
  faultOfConnect,
  faultOfData,
  fusedBroken,
  fusedFaults,
  fusedWorkOf,
  workOf,
} from "../nvme/queue-work.ts";
import { type Completion, type Status, status, statusField } from "../nvme/status.ts";
import type { BoundedConnection, ConnectionBounds, Places } from "../socket/connection-bounds.ts";
import { Credit } from "../socket/credit.ts";
import { bufferOf, Capsules, dataAt, keyBytes } from "./capsule-service.ts";
import { CutBuffers } from "./cut-buffers.ts";

type ConnectQueue = (queue: Queue, command: Command, data: Buffer) => Promise<Connected>;

/**
 * Serves a target as a service: a queue lives as long as the stream of its host.
 *
 * @param maxBytes memory for the data of one queue's commands
 */
export function serveCapsules(
  connect: ConnectQueue,
  bounds: ConnectionBounds,
  maxBytes: number,
): Implementation {
  const queues = new Map<number, CallQueue>();
  /** A queue belongs to the peer that has opened it. */
  const queueOf = (capsule: Buffer, call: CallContext): CallQueue => {
    const queue = queues.get(uint64At(capsule, 0));
    if (queue === undefined || queue.peer !== call.peer)
      throw new RpcError({ code: "failed_precondition", message: "this queue has ended, or never was" });
    return queue;
  };
  return implement(Capsules, {
    async *open(input, call) {
      const capsule = bufferOf(input);
      const command = commandOf(capsule);
      const data = capsule.subarray(dataAt.capsule);
      const key = randomBytes(6).readUIntLE(0, 6);
      const queue: CallQueue = new CallQueue(
        call.peer,
        maxBytes,
        bounds.places,
        bounds.begin(() => queue.abort()),
      );
      try {
        const completion = await queue.connect(connect, command, data);
        const answer = answerOf(command, completion, keyBytes);
        answer.writeUIntLE(key, dataAt.answer, 6);
        if (queue.isOpen) queues.set(key, queue);
        yield answer;
        if (queue.isOpen) await queue.endedWith(call.signal);
      } finally {
        queues.delete(key);
        queue.leave();
      }
    },
    submit(input, call) {
      const capsule = bufferOf(input);
      return queueOf(capsule, call).execute(commandOf(capsule), capsule.subarray(dataAt.capsule));
    },
    gather({ capsule: input, memory }, call) {
      const capsule = bufferOf(input);
      return queueOf(capsule, call).gather(commandOf(capsule), memory, call);
    },
    scatter({ capsule: input, memory }, call) {
      const capsule = bufferOf(input);
      return queueOf(capsule, call).scatter(commandOf(capsule), memory, call);
    },
    fuse(input, call) {
      const capsule = bufferOf(input);
      return queueOf(capsule, call).fuse(fusedOf(capsule), capsule.subarray(dataAt.fused));
    },
    gatherFused({ capsule: input, memory }, call) {
      const capsule = bufferOf(input);
      return queueOf(capsule, call).gatherFused(fusedOf(capsule), memory, call);
    },
  });
}

const commandOf = (capsule: Buffer): Command => parseCommand(capsule.subarray(keyBytes, dataAt.capsule));

/** The two commands of a fused operation. */
type Fused = readonly [Command, Command];

const fusedOf = (capsule: Buffer): Fused => [
  commandOf(capsule),
  parseCommand(capsule.subarray(dataAt.capsule, dataAt.capsule + sqeBytes)),
];

const answersOf = ([first, second]: Fused, [one, other]: readonly [Completion, Completion]): Buffer =>
  Buffer.concat([answerOf(first, one), answerOf(second, other)]);

/** What is wrong with a command that sends no data, and gets so many bytes. */
function faultOfAnswer(command: Command, bytes: number, inCapsuleBytes: number): Status | undefined {
  if (inCapsuleBytes > 0 || (bytes > 0 && command.bytes !== bytes)) return status.sglLength;
  return bytes > 0 && command.sglKind !== sgl.transport ? status.sglType : undefined;
}

/** A completion as bytes, with room for data behind it. */
function answerOf(command: Command, completion: Completion, dataBytes = 0): Buffer {
  const answer = Buffer.alloc(dataAt.answer + dataBytes);
  fillCompletion(answer, command, completion);
  return answer;
}

function fillCompletion(answer: Buffer, { id }: Command, { status: outcome, result }: Completion): void {
  answer.fill(0, 0, 12);
  if (result !== undefined) answer.writeBigUInt64LE(result, 0);
  answer.writeUInt16LE(id, 12);
  answer.writeUInt16LE(statusField(outcome), 14);
}

/** One queue of a controller: a stream and the calls of its host, the target's side. */
class CallQueue implements Queue {
  readonly facts = messageFacts;
  readonly peer: string;
  readonly #memory: Credit;
  readonly #answers = new CutBuffers();
  readonly #state = new QueueState();
  readonly places: Places;
  readonly #bounded: BoundedConnection;
  /** Commands that have no answer yet. A call has one command, or two that are fused. Identifiers do not count. */
  #open = 0;
  #onGone = () => {};

  constructor(peer: string, maxBytes: number, places: Places, bounded: BoundedConnection) {
    this.peer = peer;
    this.places = places;
    this.#bounded = bounded;
    this.#memory = new Credit(maxBytes);
  }

  get settled(): Promise<void> {
    return this.#state.settled;
  }

  /** Connected, and not ended. */
  get isOpen(): boolean {
    return this.#state.controller?.isEnded === false && !this.#state.isGone;
  }

  async connect(connect: ConnectQueue, command: Command, data: Buffer): Promise<Completion> {
    const fault = faultOfConnect(command, data.length, false);
    if (fault !== undefined) return { status: fault };
    const connected = await connect(this, command, data);
    if ("refused" in connected) return connected.refused;
    this.#state.connect(connected);
    return admittance(connected);
  }

  admit(): boolean {
    return this.#bounded.admit();
  }

  abort(): void {
    this.#state.abort();
    this.#onGone();
  }

  /** Resolves when the queue or the host's stream has ended. */
  async endedWith(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    await new Promise<void>((resolve) => {
      this.#onGone = resolve;
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
  }

  /** The host's stream is over. */
  leave(): void {
    this.#bounded.over();
    this.#state.leave();
  }

  /** A command with its data in the capsules, in both directions. */
  async execute(command: Command, inCapsule: Buffer): Promise<Buffer> {
    const admitted = this.#begin(1);
    if (admitted === undefined) return answerOf(command, { status: status.notReady });
    let takenBytes = 0;
    try {
      const work = workOf(admitted, command);
      if ("code" in work) return answerOf(command, { status: work });
      const { bytes } = work;
      const isSent = bytes > 0 && isFromHost(command);
      const answerBytes = isToHost(command) ? bytes : 0;
      const fault = isSent
        ? faultOfData(command, bytes, inCapsule.length, false)
        : faultOfAnswer(command, answerBytes, inCapsule.length);
      if (fault !== undefined) return answerOf(command, { status: fault });
      if (answerBytes === 0) {
        const done = await this.#state.run(bytes, () => work.run(inCapsule), broken);
        return answerOf(command, this.#checked(done));
      }
      const turn = this.#memory.take(answerBytes);
      takenBytes = answerBytes;
      if (turn !== undefined) await turn;
      let answer: Buffer | undefined;
      let into: Buffer | undefined;
      // Memory is cut when the device begins, so that neighbours in one piece are given up at about the same time.
      const run = () => {
        answer = this.#answers.take(dataAt.answer + answerBytes);
        into = answer.subarray(dataAt.answer);
        return work.run(into);
      };
      const completion = this.#checked(await this.#state.run(bytes, run, broken));
      const { data } = completion;
      if (answer === undefined || data === undefined) return answerOf(command, completion);
      if (data !== into) {
        // A command of the admin queue has data of its own.
        answer = this.#answers.take(dataAt.answer + data.length);
        data.copy(answer, dataAt.answer);
      }
      fillCompletion(answer, command, completion);
      return answer;
    } finally {
      if (takenBytes > 0) this.#memory.giveBack(takenBytes);
      this.#open--;
    }
  }

  /** A command whose data the host has in its memory. */
  gather(command: Command, memory: RemoteRegionLike<"read">, call: CallContext): Promise<Buffer> {
    return this.#counted([command], async (admitted) => {
      const work = this.#workOnMemory(admitted, command, memory.byteLength, isFromHost(command));
      if ("code" in work) return answerOf(command, { status: work });
      const completion = await this.#withMemory(work.bytes, call, async (data) => {
        await call.get(memory, data);
        return () => this.#run(work.bytes, () => work.run(data), broken);
      });
      return answerOf(command, completion);
    });
  }

  /** A command that fills the memory of the host. */
  scatter(command: Command, memory: RemoteRegionLike<"write">, call: CallContext): Promise<Buffer> {
    return this.#counted([command], async (admitted) => {
      const work = this.#workOnMemory(admitted, command, memory.byteLength, isToHost(command));
      if ("code" in work) return answerOf(command, { status: work });
      const completion = await this.#withMemory(
        work.bytes,
        call,
        async (into) => () => this.#run(work.bytes, () => work.run(into), broken),
      );
      if (completion.data !== undefined) await call.put(completion.data, memory);
      return answerOf(command, completion);
    });
  }

  /** A fused operation whose data are in the capsule. */
  fuse(commands: Fused, inCapsule: Buffer): Promise<Buffer> {
    return this.#counted(commands, async (admitted) => {
      const work = this.#fusedWork(admitted, commands, inCapsule.length, sgl.inCapsule);
      if (!("run" in work)) return answersOf(commands, work);
      const [expected, data] = [inCapsule.subarray(0, work.bytes), inCapsule.subarray(work.bytes)];
      return answersOf(commands, await this.#run(work.bytes, () => work.run(expected, data), fusedBroken));
    });
  }

  /** A fused operation whose data the host has in its memory. */
  gatherFused(commands: Fused, memory: RemoteRegionLike<"read">, call: CallContext): Promise<Buffer> {
    return this.#counted(commands, async (admitted) => {
      const work = this.#fusedWork(admitted, commands, memory.byteLength, sgl.transport);
      if (!("run" in work)) return answersOf(commands, work);
      const completions = await this.#withMemory(2 * work.bytes, call, async (data) => {
        await call.get(memory, data);
        const [expected, written] = [data.subarray(0, work.bytes), data.subarray(work.bytes)];
        return () => this.#run(work.bytes, () => work.run(expected, written), fusedBroken);
      });
      return answersOf(commands, completions);
    });
  }

  /** The work, or the completions of faulty commands. Data of the second command follow those of the first. */
  #fusedWork(
    admitted: Admitted,
    commands: Fused,
    dataBytes: number,
    kind: number,
  ): FusedWork | readonly [Completion, Completion] {
    const work = fusedWorkOf(admitted, ...commands);
    if (!("run" in work)) return [{ status: work[0] }, { status: work[1] }];
    const faults = commands.map(({ sglKind, sglOffset, bytes }, index): Status | undefined => {
      if (sglKind !== kind) return status.sglType;
      if (kind === sgl.inCapsule && sglOffset !== index * work.bytes) return status.sglOffset;
      return bytes === work.bytes && dataBytes === 2 * work.bytes ? undefined : status.sglLength;
    });
    return faults.some((fault) => fault !== undefined) ? fusedFaults(faults) : work;
  }

  /**
   * Gives memory to work of the device, and takes it back when the device is done. A host that gives up the call does
   * not wait for that. The host's memory is free when the handler has ended.
   */
  async #withMemory<T>(
    bytes: number,
    { signal }: CallContext,
    begin: (memory: Buffer) => Promise<() => Promise<T>>,
  ): Promise<T> {
    await this.#memory.take(bytes);
    let work: Promise<T> | undefined;
    try {
      const run = await begin(Buffer.allocUnsafe(bytes));
      signal.throwIfAborted();
      work = run();
    } finally {
      if (work === undefined) this.#memory.giveBack(bytes);
    }
    const done = work.finally(() => this.#memory.giveBack(bytes));
    return new Promise((resolve, reject) => {
      const onAbort = () => reject(signal.reason);
      signal.addEventListener("abort", onAbort, { once: true });
      void done.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
    });
  }

  #workOnMemory(admitted: Admitted, command: Command, memoryBytes: number, isThisWay: boolean) {
    const work = workOf(admitted, command);
    if ("code" in work) return work;
    if (command.sglKind !== sgl.transport) return status.sglType;
    const fits = isThisWay && work.bytes > 0 && command.bytes === work.bytes && memoryBytes === work.bytes;
    return fits ? work : status.sglLength;
  }

  /** Counts commands as open. Undefined if there is no room: the caller answers that it is not ready. */
  #begin(commands: number): Admitted | undefined {
    const { admitted, maxOpen } = this.#state;
    if (admitted === undefined || admitted.controller.isEnded) throw queueEnded();
    // A host that has given up a call may use the call's place again before the device is done.
    if (this.#open + commands > maxOpen) return undefined;
    this.#open += commands;
    return admitted;
  }

  async #counted(
    commands: readonly Command[],
    work: (admitted: Admitted) => Promise<Buffer>,
  ): Promise<Buffer> {
    const admitted = this.#begin(commands.length);
    if (admitted === undefined)
      return Buffer.concat(commands.map((command) => answerOf(command, { status: status.notReady })));
    try {
      return await work(admitted);
    } finally {
      this.#open -= commands.length;
    }
  }

  /** Work does not begin when the queue has ended. */
  async #run<T extends Completion | readonly Completion[]>(
    bytes: number,
    work: () => Promise<T>,
    failed: T,
  ): Promise<T> {
    return this.#checked(await this.#state.run(bytes, work, failed));
  }

  #checked<T extends Completion | readonly Completion[]>(done: T | undefined): T {
    if (done === undefined) throw queueEnded();
    // The answer leaves before the end of the stream does.
    if ("isLast" in done) setImmediate(() => this.abort());
    return done;
  }
}

/** The completion of a command that ended in an error of the program. */
const broken: Completion = { status: status.internal };

const queueEnded = () =>
  new RpcError({ code: "failed_precondition", message: "this queue has ended, or never was" });
