import { type Command, fuse, fuseOf } from "./command.ts";
import type { Admitted } from "./controller.ts";
import type { QueueState } from "./queue-state.ts";
import { type Completion, status } from "./status.ts";

/** A command that came, with the data of its transport. */
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
  /** Answers, and ends the queue after the last answer. */
  respond(arrived: A, completion: Completion): void;
}

/** The commands of a connection from their arrival to their answer. Each has a different identifier. */
export class QueueCommands<A extends Arrived> {
  readonly #transport: Transport<A>;
  readonly #state: QueueState;
  readonly #inFlight = new Set<number>();
  /** The first command of a fused operation, until the next command comes. */
  #first: A | undefined;
  #head = 0;

  constructor(transport: Transport<A>, state: QueueState) {
    this.#transport = transport;
    this.#state = state;
  }

  /** As many commands have no answer as the queue has room for. */
  get isFull(): boolean {
    return this.#inFlight.size >= this.#state.maxOpen;
  }

  /** How far the controller has read the queue, for the next answer. */
  get head(): number {
    return this.#head;
  }

  /** Counts a command that came. */
  count(): void {
    this.#head = (this.#head + 1) % (this.#state.admitted?.entries ?? 2);
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
    if (this.#state.queueId !== 0 && fuseOf(command) === fuse.first) {
      this.#first = arrived;
      return;
    }
    void this.#transport.execute(admitted, arrived).then((completion) => this.#complete(arrived, completion));
  }

  /** Answers, unless the queue has ended before there is an answer. */
  #complete(arrived: A, completion: Completion | undefined): void {
    this.#inFlight.delete(arrived.command.id);
    if (completion !== undefined) this.#transport.respond(arrived, completion);
  }
}
