import { type Admitted, type Controller, unprovenCommands } from "./controller.ts";

/** A queue from its connection to its end, whatever transport it has. */
export class QueueState {
  /** Resolves when the queue has ended and the device has no work under way for it. */
  readonly settled: Promise<void>;
  #admitted: Admitted | undefined;
  #maxOpen = 1;
  /** Commands that a device works on. */
  #underWay = 0;
  #isGone = false;
  #settle = () => {};

  constructor() {
    this.settled = new Promise((resolve) => (this.#settle = resolve));
  }

  /** Undefined before Connect. */
  get admitted(): Admitted | undefined {
    return this.#admitted;
  }

  get controller(): Controller | undefined {
    return this.#admitted?.controller;
  }

  /** 0, that of the admin queue, before Connect. */
  get queueId(): number {
    return this.#admitted?.queueId ?? 0;
  }

  /**
   * How many commands may be open: the queue's entries, or fewer until the host has proved its identity. Before Connect
   * there is room for that command alone.
   */
  get maxOpen(): number {
    return this.#maxOpen;
  }

  /** The queue has ended: no command begins. */
  get isGone(): boolean {
    return this.#isGone;
  }

  /** @param opened called when the host has proved its identity later than with Connect */
  connect(admitted: Admitted, opened: () => void = () => {}): void {
    const { entries, authentication } = admitted;
    this.#admitted = admitted;
    this.#maxOpen = authentication === undefined ? entries : Math.min(entries, unprovenCommands);
    void authentication?.done.then(() => {
      this.#maxOpen = entries;
      if (!this.#isGone) opened();
    });
  }

  /**
   * Lets the device work for a queue that is connected, unless it has ended. Undefined where it has. Work for blocks
   * waits until the rate of the host lets it begin.
   *
   * @param bytes the length of its data
   */
  async run<T>(bytes: number, work: () => Promise<T>, failed: T): Promise<T | undefined> {
    const turn = this.queueId === 0 ? undefined : this.controller?.pace?.take(bytes, this.#hasEnded);
    if (turn !== undefined) await turn;
    if (!(await this.controller?.mayBegin()) || this.#isGone) return undefined;
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

  readonly #hasEnded = (): boolean => this.#isGone;

  /** No command begins any more. */
  abort(): void {
    this.#isGone = true;
    this.controller?.pace?.look();
    this.#admitted?.authentication?.end();
  }

  /** The connection is over. With the admin queue, the controller ends. */
  leave(): void {
    this.abort();
    if (this.queueId === 0) this.controller?.end();
    if (this.#underWay === 0) this.#settle();
  }
}
