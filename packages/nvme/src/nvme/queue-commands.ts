import { type Command, fuse, fuseOf } from "./command.ts";
import { type Admitted, type Controller, unprovenCommands } from "./controller.ts";
import { type Completion, status } from "./status.ts";

/** A command that came, with what its transport knows of it. */
export interface Arrived {
  readonly command: Command;
}

/** What a transport does for the commands of its queue. */
export interface Transport<A extends Arrived> {
  /** Does a command. Undefined where the queue ends before there is an answer. */
  execute(admitted: Admitted, arrived: A): Promise<Completion | undefined>;
  /** Does both commands of a fused operation. */
  executeFused(
    admitted: Admitted,
    first: A,
    second: A,
  ): Promise<readonly [Completion, Completion] | undefined>;
  /** Answers, and ends the queue behind the answer that is the last. */
  respond(arrived: A, completion: Completion): void;
}

/** The commands of one connection from their arrival to their answer, whatever transport they come by. */
export class QueueCommands<A extends Arrived> {
  /** Resolves when the queue has ended and the device has nothing under way for it. */
  readonly settled: Promise<void>;
  readonly #transport: Transport<A>;
  readonly #inFlight = new Set<number>();
  /** The first command of a fused operation, until the next command comes. */
  #first: A | undefined;
  #admitted: Admitted | undefined;
  /** How many commands may be open. Before Connect there is room for that alone. */
  #maxOpen = 1;
  #head = 0;
  /** Commands that a device works on. */
  #underWay = 0;
  #isGone = false;
  #settle = () => {};

  constructor(transport: Transport<A>) {
    this.#transport = transport;
    this.settled = new Promise((resolve) => (this.#settle = resolve));
  }

  /** Undefined before Connect. */
  get admitted(): Admitted | undefined {
    return this.#admitted;
  }

  get controller(): Controller | undefined {
    return this.#admitted?.controller;
  }

  get #queueId(): number {
    return this.#admitted?.queueId ?? 0;
  }

  /** The queue has ended: no command begins. */
  get isGone(): boolean {
    return this.#isGone;
  }

  /** As many commands have no answer as the queue has entries, or as a host may have that has proved nothing. */
  get isFull(): boolean {
    return this.#inFlight.size >= this.#maxOpen;
  }

  /** How far the controller has read the queue, for the next answer. */
  get head(): number {
    return this.#head;
  }

  /** Counts a command that came. */
  count(): void {
    this.#head = (this.#head + 1) % (this.#admitted?.entries ?? 2);
  }

  /** @param admit the host has proved who it is, or need not */
  connect(admitted: Admitted, admit: () => void): void {
    const { entries, authentication } = admitted;
    this.#admitted = admitted;
    const open = () => {
      this.#maxOpen = entries;
      if (!this.#isGone) admit();
    };
    if (authentication === undefined) return open();
    this.#maxOpen = Math.min(entries, unprovenCommands);
    void authentication.done.then(open);
  }

  /** Begins a command, with the first one of its fused operation. Such a first one waits for the next command. */
  take(admitted: Admitted, arrived: A): void {
    const { command } = arrived;
    const first = this.#first;
    this.#first = undefined;
    const isConflict = this.#inFlight.has(command.id);
    const isSecond = fuseOf(command) === fuse.second && !isConflict;
    if (first !== undefined && !isSecond) this.#complete(first, { status: status.fusedMissing });
    if (isConflict) {
      this.#transport.respond(arrived, { status: status.idConflict });
      return;
    }
    this.#inFlight.add(command.id);
    if (first !== undefined && isSecond) {
      void this.#transport.executeFused(admitted, first, arrived).then((completions) => {
        for (const [index, one] of [first, arrived].entries()) this.#complete(one, completions?.[index]);
      });
      return;
    }
    if (this.#queueId !== 0 && fuseOf(command) === fuse.first) {
      this.#first = arrived;
      return;
    }
    void this.#transport.execute(admitted, arrived).then((completion) => this.#complete(arrived, completion));
  }

  /** Lets the device work, unless the queue has ended. Undefined where it has. */
  async run<T>(controller: Controller, work: () => Promise<T>, failed: T): Promise<T | undefined> {
    if (!(await controller.mayBegin()) || this.#isGone) return undefined;
    this.#underWay++;
    try {
      return await work();
    } catch {
      return failed;
    } finally {
      this.#underWay--;
      if (this.#isGone && this.#underWay === 0) this.#settle();
    }
  }

  /** No command begins any more. */
  abort(): void {
    this.#isGone = true;
  }

  /** The connection is over. With the admin queue, the controller ends. */
  leave(): void {
    this.#isGone = true;
    if (this.#queueId === 0) this.controller?.end();
    if (this.#underWay === 0) this.#settle();
  }

  /** Answers, unless the queue has ended before there is an answer. */
  #complete(arrived: A, completion: Completion | undefined): void {
    this.#inFlight.delete(arrived.command.id);
    if (completion !== undefined) this.#transport.respond(arrived, completion);
  }
}
