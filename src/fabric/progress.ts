import { armDetached, runDetached } from "../base/time/detached-context.ts";
import { realTimers } from "../base/time/real-timers.ts";
import { nobody, type Port, type PortSink } from "./port.ts";
import { SpinPolicy } from "./spin-policy.ts";

/** Collects messages during a turn: an outbox. */
export interface Flushable {
  /** Whether it is already in the list of the turn. */
  flushQueued: boolean;
  /** Posts the collected messages. True if there were any. */
  flush(): boolean;
}

/** What senders and transfers need of progress. */
export interface Turns {
  /** A message was queued or work was posted: makes progress soon. */
  wake(): void;
  /** Calls `flush` at the end of this turn, before anything is awaited. */
  flushSoon(queue: Flushable): void;
  /** Work of this turn continues in microtasks: the turn must not wait for further entries. */
  goOn(): void;
}

/**
 * Drives the ports of one engine on its thread. It polls while there is traffic, and sleeps on the file descriptors of
 * the ports otherwise.
 *
 * In a turn queued messages leave and entries are delivered. Then microtasks run: handlers and callers continue. After
 * the microtasks the next turn begins. It is a tick (`process.nextTick`) if the last turn found entries, else a turn of
 * the event loop (`setImmediate`). Ticks continue for at most `mostTicksMs`, or less where the loop has other work.
 * After `lingerMs` without traffic the ports are armed, and no turn runs until one wakes. Polling has a tenth of the
 * latency of a wake-up or less (docs/design/progress.md). It stops so that an idle engine costs nothing. When other
 * processes need the processors, polling has a hundred times the latency. Then no port spins, a port that wakes is
 * polled in the callback of its descriptor, and the ports are armed as soon as they have no entry.
 */
export class Progress implements Turns {
  readonly #ports = new Set<Port>();
  /** Receives what arrives. */
  sink: PortSink = nobody;
  /** Outboxes that have collected messages since the last turn. */
  #queues: Flushable[] = [];
  #scheduled: NodeJS.Immediate | undefined;
  /** A turn runs now. */
  #runs = false;
  /** The turn that runs has queued a message or posted work. */
  #wanted = false;
  /** The next turn is a tick. */
  #ticks = false;
  /** When the turn that runs, or the last one, began. */
  #turnMs = 0;
  /** When the event loop got its last turn, and when that turn was over. */
  #leftMs = 0;
  #loopedMs = 0;
  /** The number of further turns in which the loop counts as busy with other work. */
  #busyLoops = 0;
  #slowPoll: NodeJS.Timeout | undefined;
  #slowPollMs = 1;
  #asleep = false;
  /** Ports are delivering entries and must not be polled, for example by a handler that closes the engine. */
  #delivering = false;
  #closed = false;
  readonly #spinPolicy = new SpinPolicy();
  /** No port needs polling. */
  #isEventDriven = false;
  /**
   * How long one native call spins, which saves turns of the loop. Two ports must not wait for each other, so they yield
   * only once.
   */
  #spinUs = spinUs;
  /** The last turn has received messages. */
  #hasReceived = false;
  /** This thread has work after this turn. */
  #goesOn = false;
  /** The sink has deferred work until the end of the next turn. */
  #deferred = false;
  /** The last turn found no entry, and the ports do not sleep: an entry that comes now was caught by polling. */
  #looking = false;
  #activeMs = 0;

  add(port: Port): void {
    this.#ports.add(port);
    this.#onPorts();
    port.onWake = this.#wakerOf(port);
    this.wake();
  }

  remove(port: Port): void {
    this.#ports.delete(port);
    this.#onPorts();
    port.onWake = () => {};
    port.disarm();
  }

  #onPorts(): void {
    const isEventDriven = [...this.#ports].every((each) => each.isEventDriven);
    // Events of the kernel make all the progress of such ports.
    if (isEventDriven !== this.#isEventDriven)
      this.#spinPolicy.blocksUntilMs = isEventDriven ? Number.POSITIVE_INFINITY : 0;
    this.#isEventDriven = isEventDriven;
    this.#spinUs = this.#ports.size === 1 ? spinUs : 1;
  }

  /** What a port calls when it has woken. */
  #wakerOf(port: Port): () => void {
    return () => {
      if (this.#closed) return;
      if (!this.#asleep || realTimers.now() >= this.#spinPolicy.blocksUntilMs) return this.wake();
      // The turn begins here, in the callback of the descriptor. An immediate would run it in the same turn of the
      // loop. The work after it would then need one more turn, and a check of all descriptors.
      this.#disarm(true);
      runDetached(this.#wakeTurn, port);
    };
  }

  /** A turn in the callback of a descriptor: it polls the port that has woken. */
  readonly #wakeTurn = (port: Port): void => {
    const nowMs = realTimers.now();
    this.#loopedMs = nowMs;
    this.#slowPollMs = 1;
    this.#run(nowMs, port);
  };

  /**
   * The next turn begins after this turn's microtasks if this turn found entries, else after a turn of the loop. The
   * loop's turn is scheduled at once, so it keeps its place among others.
   */
  #schedule(active: boolean): void {
    this.#scheduled ??= armDetached(realTimers.setImmediate, this.#loopTurn);
    if (!active) this.#leftMs = realTimers.now();
    if (!active || this.#ticks) return;
    this.#tickSoon(this.#turnMs - this.#loopedMs < (this.#busyLoops > 0 ? busyTicksMs : mostTicksMs));
  }

  /** After this turn's microtasks the next turn begins, or only the event loop's time. */
  #tickSoon(isTurn: boolean): void {
    this.#ticks = isTurn;
    // Ticks run before microtasks. A tick that a microtask sets runs when no microtask is left.
    armDetached(behindMicrotasks, this.#setTick);
  }

  readonly #setTick = (): void => realTimers.nextTick(this.#tick);

  readonly #tick = (): void => {
    // The time up to here belonged to this engine and its callers, not to the loop.
    this.#leftMs = realTimers.now();
    if (!this.#ticks) return;
    this.#ticks = false;
    if (!this.#closed) this.#run(this.#leftMs);
  };

  readonly #loopTurn = (): void => {
    const nowMs = realTimers.now();
    if (nowMs - this.#leftMs > idleLoopMs) this.#busyLoops = rememberedLoops;
    else if (this.#busyLoops > 0) this.#busyLoops--;
    this.#scheduled = undefined;
    this.#loopedMs = nowMs;
    this.#run(nowMs);
  };

  /** A message was queued, work was posted, or a port has woken: makes progress soon. */
  wake(): void {
    if (this.#closed) return;
    if (this.#runs) {
      this.#wanted = true;
      this.#activeMs = this.#turnMs;
      return;
    }
    if (this.#scheduled !== undefined || this.#ticks) return;
    this.#disarm();
    this.#activeMs = realTimers.now();
    this.#leftMs = this.#activeMs;
    this.#scheduled = armDetached(realTimers.setImmediate, this.#loopTurn);
  }

  flushSoon(queue: Flushable): void {
    if (queue.flushQueued) return;
    queue.flushQueued = true;
    this.#queues.push(queue);
  }

  goOn(): void {
    this.#goesOn = true;
  }

  /** Runs one turn now, before a caller concludes that nothing has arrived. */
  poll(): void {
    if (!this.#closed) runDetached(this.#pollNow);
  }

  readonly #pollNow = (): void => {
    this.#flush();
    if (!this.#delivering) this.#progress(0, realTimers.now());
    this.wake();
  };

  /** Returns whether any message left. */
  #flush(): boolean {
    if (this.#queues.length === 0) return false;
    const queues = this.#queues;
    this.#queues = [];
    let sent = false;
    for (const queue of queues) {
      queue.flushQueued = false;
      if (queue.flush()) sent = true;
    }
    return sent;
  }

  /** Polls one port or all. Returns whether any entry arrived. */
  #progress(spinUs: number, nowMs: number, only?: Port): boolean {
    let active = false;
    this.#delivering = true;
    let lostUs = 0;
    let caught = 0;
    this.#hasReceived = false;
    for (const port of this.#ports) {
      const { received } = port;
      if ((only === undefined || port === only) && port.progress(spinUs, this.sink) > 0) active = true;
      if (port.received !== received) this.#hasReceived = true;
      lostUs += port.spinLostUs;
      caught += port.spinCaught;
    }
    this.#deferred = this.sink.onTurnEnd?.() === true;
    this.#delivering = false;
    const policy = this.#spinPolicy;
    const caughtLater = active && this.#looking;
    if (caughtLater || lostUs !== policy.lostUs || caught !== policy.caught)
      policy.account(lostUs, caught, caughtLater, nowMs);
    this.#looking = !active && spinUs > 0;
    return active || this.#deferred;
  }

  close(): void {
    this.#closed = true;
    realTimers.clearImmediate(this.#scheduled);
    realTimers.clearTimeout(this.#slowPoll);
    this.#scheduled = undefined;
  }

  /** Runs a turn, and then the work that woke this engine during the turn. */
  #run(nowMs: number, woken?: Port): void {
    this.#turnMs = nowMs;
    this.#runs = true;
    this.#wanted = false;
    this.#goesOn = false;
    try {
      if (woken === undefined) this.#turn(nowMs);
      else this.#turnOf(woken, nowMs);
    } finally {
      this.#runs = false;
      if (this.#wanted) this.wake();
    }
  }

  #turn(nowMs: number): void {
    const sent = this.#flush();
    const blocks = nowMs < this.#spinPolicy.blocksUntilMs;
    // Beside busy processes each poll costs a system call. `arm` polls once, and finds the entries that have come.
    if (blocks && !this.#goesOn && !this.#deferred && !this.#wanted && this.#sleep()) return;
    const arrived = this.#progress(blocks || this.#goesOn ? 0 : this.#spinUs, nowMs);
    if (this.#closed) return;
    // Answers that handlers gave at once leave in this turn.
    this.#flush();
    if (arrived || sent) {
      this.#activeMs = nowMs;
      this.#slowPollMs = 1;
    }
    // While ports block, one more turn lets the answers to what arrived leave.
    const answers = this.#deferred || this.#wanted || this.#hasReceived;
    // While they spin, only a turn of the loop ends the traffic.
    const isRecent = this.#scheduled !== undefined || nowMs - this.#activeMs < lingerMs;
    const lingers = this.#goesOn || (blocks ? answers : isRecent);
    if (lingers || !this.#sleep()) this.#schedule(arrived || this.#goesOn);
  }

  /** The turn of a port that has woken. */
  #turnOf(woken: Port, nowMs: number): void {
    const arrived = this.#progress(0, nowMs, woken);
    if (this.#closed) return;
    this.#flush();
    // After this tick the ports mostly sleep again, so no turn of the loop is scheduled that would be cancelled.
    if (arrived) this.#tickSoon(true);
    else this.#schedule(false);
  }

  #disarm(watches = realTimers.now() < this.#spinPolicy.blocksUntilMs): void {
    if (!this.#asleep) return;
    this.#asleep = false;
    realTimers.clearTimeout(this.#slowPoll);
    for (const port of this.#ports) port.disarm(watches);
  }

  #sleep(): boolean {
    let busy = false;
    this.#asleep = true;
    for (const port of this.#ports) {
      const sleeps = port.arm();
      if (this.#closed) return true;
      if (!sleeps) {
        this.#disarm();
        return false;
      }
      busy ||= port.busy;
    }
    // A provider may complete posted work only while it is polled, without an event of a descriptor. Poll with growing
    // pauses.
    if (busy) {
      this.#slowPoll = armDetached(realTimers.setTimeout, () => this.#glance(), this.#slowPollMs);
      // Messages to a stopped peer must not keep an otherwise finished process alive.
      this.#slowPoll.unref();
      this.#slowPollMs = Math.min(this.#slowPollMs * 2, slowestPollMs);
    }
    this.#looking = false;
    // A scheduled turn would find the ports asleep.
    realTimers.clearImmediate(this.#scheduled);
    this.#scheduled = undefined;
    this.#ticks = false;
    return true;
  }

  /** Runs a turn that does not count as traffic. */
  #glance(): void {
    this.#disarm();
    this.#leftMs = realTimers.now();
    this.#scheduled ??= realTimers.setImmediate(this.#loopTurn);
  }
}

/** How long to poll after the last traffic. A longer time helps slow ping-pong, a shorter one saves CPU. */
const lingerMs = 0.5;
const spinUs = 10;
/** How long turns may follow each other as ticks before the event loop has its turn. Less where it has other work. */
const mostTicksMs = 0.1;
const busyTicksMs = 0.02;
/** A turn of the loop that takes longer has other work. The loop then counts as busy for so many further turns. */
const idleLoopMs = 0.01;
const rememberedLoops = 32;
const slowestPollMs = 16;

const resolved = Promise.resolve();
const behindMicrotasks = resolved.then.bind(resolved);
