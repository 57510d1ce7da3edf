import { performance } from "node:perf_hooks";
import { Crowd } from "./crowd.ts";
import { outside } from "./outside.ts";
import type { Port, PortSink } from "./port.ts";

/**
 * Drives the ports of one engine on the JS thread: polls while traffic flows, sleeps on their file descriptors when it does not.
 *
 * A turn is one setImmediate: what was queued leaves, what arrived is handed out, then microtasks run (handlers and callers go on),
 * then the next turn. After `lingerMs` without traffic the ports are armed and nothing runs until one wakes.
 * Polling beats a wake-up by a factor of ten and more in latency (docs/design/progress.md); it stops so that idle costs nothing.
 * Where others want the processors it loses by a factor of a hundred: then nothing spins, and the ports are armed as soon as nothing is there.
 */
export class Progress {
  readonly #ports = new Set<Port>();
  readonly #sink: PortSink;
  /** Sends what has been queued since the last turn; true if there was any. */
  readonly #flush: () => boolean;
  #scheduled: NodeJS.Immediate | undefined;
  #slowPoll: NodeJS.Timeout | undefined;
  #slowPollMs = 1;
  #asleep = false;
  /** Ports are handing out what has arrived, and must not be asked for more: they may be asked from there, by a handler that closes the engine. */
  #delivering = false;
  #closed = false;
  readonly #crowd = new Crowd();
  /** The last turn looked for what had not come, and the ports do not sleep: what comes now has been caught by polling as well. */
  #looking = false;
  #activeMs = 0;
  /** When the ports were last asked; Infinity while they sleep, for then they say at once that something has come. */
  #polledMs = Number.POSITIVE_INFINITY;
  #arrivedMs = 0;

  constructor(sink: PortSink, flush: () => boolean) {
    this.#sink = sink;
    this.#flush = flush;
  }

  /**
   * The earliest that what is being handed out can have arrived, on the clock of `performance.now()`: after the ports were last asked, if they were. It
   * has waited since while this thread was busy with something else.
   */
  get arrivedMs(): number {
    return this.#arrivedMs;
  }

  add(port: Port): void {
    this.#ports.add(port);
    port.onWake = () => this.kick();
    this.kick();
  }

  remove(port: Port): void {
    this.#ports.delete(port);
    port.onWake = () => {};
  }

  /** Something was queued, posted or woken: make progress soon. */
  kick(): void {
    if (this.#scheduled !== undefined || this.#closed) return;
    this.#wake();
    this.#activeMs = performance.now();
    this.#scheduled = outside(scheduleTurn, this.#turn);
  }

  /** One turn now, outside the loop: before judging that nothing has arrived. */
  poll(): void {
    if (!this.#closed) outside(this.#pollNow);
  }

  readonly #pollNow = (): void => {
    this.#flush();
    if (!this.#delivering) this.#progress(0, performance.now());
    this.kick();
  };

  /** True if anything arrived. */
  #progress(spinUs: number, nowMs: number): boolean {
    let active = false;
    this.#arrivedMs = Math.min(nowMs, this.#polledMs);
    this.#polledMs = nowMs;
    this.#delivering = true;
    let lostUs = 0;
    let caught = 0;
    for (const port of this.#ports) {
      if (port.progress(spinUs, this.#sink) > 0) active = true;
      lostUs += port.spinLostUs;
      caught += port.spinCaught;
    }
    this.#delivering = false;
    this.#crowd.account(lostUs, caught, active && this.#looking, nowMs);
    this.#looking = !active && spinUs > 0;
    return active;
  }

  close(): void {
    this.#closed = true;
    clearImmediate(this.#scheduled);
    clearTimeout(this.#slowPoll);
    this.#scheduled = undefined;
  }

  readonly #turn = (): void => {
    this.#scheduled = undefined;
    const nowMs = performance.now();
    const sent = this.#flush();
    const crowded = this.#crowd.isHere(nowMs);
    const arrived = this.#progress(crowded ? 0 : this.#spinUs(), nowMs);
    const active = arrived || sent;
    if (this.#closed) return;
    // Answers that handlers gave at once need not wait for the next turn.
    this.#flush();
    if (active) {
      this.#activeMs = nowMs;
      this.#slowPollMs = 1;
    }
    // In a crowd what has arrived gets one more turn, in which its answers leave.
    const lingers = crowded ? arrived : nowMs - this.#activeMs < lingerMs;
    if (lingers || !this.#sleep()) {
      this.#scheduled ??= setImmediate(this.#turn);
    }
  };

  /** Spinning inside one native call saves turns of the loop, but two ports must not wait for each other: they only give way once. */
  #spinUs(): number {
    return this.#ports.size === 1 ? spinUs : 1;
  }

  #wake(): void {
    if (!this.#asleep) return;
    this.#asleep = false;
    clearTimeout(this.#slowPoll);
    for (const port of this.#ports) port.disarm();
  }

  #sleep(): boolean {
    let busy = false;
    this.#asleep = true;
    for (const port of this.#ports) {
      if (!port.arm()) {
        this.#wake();
        return false;
      }
      busy ||= port.busy;
    }
    // shm completes posted work only while somebody polls, and no descriptor tells of it: look now and then, ever more seldom.
    if (busy) {
      this.#slowPoll = setTimeout(() => this.#glance(), this.#slowPollMs);
      // What a stopped peer will not take must not hold a process that has nothing else to do.
      this.#slowPoll.unref();
      this.#slowPollMs = Math.min(this.#slowPollMs * 2, slowestPollMs);
    }
    this.#polledMs = Number.POSITIVE_INFINITY;
    this.#looking = false;
    return true;
  }

  /** A turn that does not count as traffic. */
  #glance(): void {
    this.#wake();
    this.#scheduled ??= setImmediate(this.#turn);
  }
}

/** How long to poll after the last traffic. Longer serves slow ping-pong, shorter spares the processor. */
const lingerMs = 0.5;
const spinUs = 10;
const slowestPollMs = 16;

const scheduleTurn = (turn: () => void): NodeJS.Immediate => setImmediate(turn);
