import { Dissemination } from "./dissemination.ts";
import type { IndirectPing, MemberId, Message, OwnStatus, Purpose, Status, Update } from "./message.ts";
import { isLiving, isNews, Opinions, OwnState, pickMembers, type Roster } from "./opinions.ts";
import type { ResolvedOptions } from "./options.ts";
import { AwakeClock, LocalHealth } from "./own-faults.ts";
import { type Probe, ProbeOrder, Relays } from "./probes.ts";
import { Suspicions } from "./suspicions.ts";

/** What a detector reports. It does not decide who is a member. */
export type DetectorEvent =
  /** The belief about another member has changed. */
  | {
      readonly type: "status";
      readonly member: MemberId;
      readonly status: Status;
      readonly previous: Status;
      readonly incarnation: number;
      /** The member that suspects, for `suspect`. */
      readonly accuser?: MemberId;
    }
  /** Others suspected this member, and it has said that it lives. */
  | { readonly type: "refuted"; readonly incarnation: number }
  /** Others have declared this member dead. It comes back with a later incarnation, or is silent from now on. */
  | { readonly type: "excluded"; readonly incarnation: number; readonly returns: boolean }
  /**
   * This member has received no message for `outagePeriods`, or receives messages again. Isolated, it suspects no
   * member.
   */
  | { readonly type: "isolated"; readonly isolated: boolean }
  /** This member did not run for a while. Its deadlines have moved. */
  | { readonly type: "slept"; readonly sleptMs: number };

/** Counters since the start. */
export interface DetectorStats {
  readonly sent: number;
  readonly received: number;
  /** Messages from processes that are not members, or for another member. */
  readonly ignored: number;
  readonly probes: number;
  /** Probes without an answer of the target or of a member in between. */
  readonly failedProbes: number;
  /** Suspicions that this member raised or confirmed by its own probes. */
  readonly suspicions: number;
  /** Suspicions and deaths of itself that this member has refuted. */
  readonly refutations: number;
  /** Deaths that this member declared by itself. */
  readonly deaths: number;
  /** Indirect probes refused because too many were under way. */
  readonly refusedRelays: number;
  /** For how long this member did not run, as far as it noticed. */
  readonly sleptMs: number;
  /** 0 is healthy. */
  readonly localHealth: number;
}

/** What a detector needs of the world. */
interface DetectorPorts {
  /** Sends a message, or loses it. */
  send(address: string, message: Message): void;
  /** From 0 to below 1. */
  random(): number;
  onEvent(event: DetectorEvent): void;
}

/** What a message has beside its purpose and the news. */
interface Addition {
  /** A member whose state the receiver gets in any case. */
  readonly about?: MemberId;
  readonly update?: Update | undefined;
  /** Default: the first of the receiver. */
  readonly address?: string;
}

const never = Number.POSITIVE_INFINITY;

/**
 * SWIM with Lifeguard's extensions, as a state machine: it has no clock, no timer and no socket. Its driver hands it
 * messages, and calls `advance` at `dueMs`. `docs/design/groups.md` has the rules and their reasons.
 */
export class Detector {
  readonly self: MemberId;
  readonly #own: OwnState;
  readonly #options: ResolvedOptions;
  readonly #ports: DetectorPorts;
  readonly #clock: AwakeClock;
  readonly #health: LocalHealth;
  readonly #order: ProbeOrder;
  readonly #opinions: Opinions;
  readonly #dissemination: Dissemination;
  readonly #relays: Relays;
  readonly #suspicions: Suspicions;
  readonly #counts = {
    ...{ sent: 0, received: 0, ignored: 0, probes: 0, failedProbes: 0 },
    ...{ suspicions: 0, refutations: 0, deaths: 0, refusedRelays: 0 },
  };
  #roster: Roster;
  #isSilent = false;
  #isIsolated = false;
  readonly #probes = new Map<number, Probe>();
  /** When the next period begins. */
  #periodMs: number;
  #heardMs: number;
  #sequence: number;
  /** In awake time, as every time in here. */
  #dueMs: number;

  /** @throws RangeError when the roster lacks this member */
  constructor(self: MemberId, roster: Roster, options: ResolvedOptions, ports: DetectorPorts, nowMs: number) {
    this.self = self;
    this.#own = new OwnState(roster.require(self).incarnation ?? 0);
    this.#roster = roster;
    this.#options = options;
    this.#ports = ports;
    this.#clock = new AwakeClock(options.shiftOverSleep ? options.periodMs / 2 : never);
    this.#suspicions = new Suspicions(options);
    this.#health = new LocalHealth(options.maxLocalHealth);
    this.#order = new ProbeOrder(ports.random);
    // An asker asks after its ping timeout and waits for the rest of its period.
    this.#relays = new Relays(0.8 * (options.periodMs - options.pingTimeoutMs));
    this.#opinions = new Opinions(roster);
    this.#dissemination = new Dissemination(self, options, this.#opinions);
    this.#heardMs = nowMs;
    // Members that start together do not probe together.
    this.#periodMs = nowMs + ports.random() * options.periodMs;
    this.#sequence = Math.floor(ports.random() * 0xffff);
    this.#dueMs = this.#periodMs;
  }

  /** When `advance` is due, by the clock that `nowMs` comes from; Infinity for never. */
  get dueMs(): number {
    return this.#isSilent ? never : this.#clock.outside(this.#dueMs);
  }

  get incarnation(): number {
    return this.#own.incarnation;
  }

  /** Whether this member has left and has nothing more to announce, or was excluded and does not come back. */
  get isDone(): boolean {
    if (this.#isSilent) return true;
    return this.#own.status === "left" && (!this.#dissemination.hasNews || this.#opinions.living <= 1);
  }

  get stats(): DetectorStats {
    return { ...this.#counts, sleptMs: this.#clock.sleptMs, localHealth: this.#health.score };
  }

  /** The believed status of a member; undefined for one that is not in the roster. */
  statusOf(member: MemberId): Status | undefined {
    return member === this.self ? this.#own.status : this.#opinions.of(member)?.status;
  }

  /** Time that passed while this member ran. */
  awakeMs(nowMs: number): number {
    const before = this.#clock.sleptMs;
    const awakeMs = this.#clock.read(nowMs, this.#dueMs);
    const sleptMs = this.#clock.sleptMs - before;
    if (sleptMs > 0) this.#ports.onEvent({ type: "slept", sleptMs });
    // Refutations may have come and gone meanwhile.
    if (sleptMs > this.#options.periodMs) this.#suspicions.restartAll(awakeMs, this.self);
    return awakeMs;
  }

  /**
   * Takes a message in. Pass all messages that have arrived before `advance`: otherwise it sees silence that did not
   * occur.
   */
  receive(message: Message, nowMs: number): void {
    const now = this.awakeMs(nowMs);
    if (this.#isSilent) return;
    const { from } = message;
    if (message.to !== this.self || from === this.self || this.#roster.get(from) === undefined) {
      this.#counts.ignored += 1;
      return;
    }
    this.#counts.received += 1;
    this.#heardMs = now;
    this.#setIsolated(false);
    const former = this.#opinions.of(from);
    this.#believe({ member: from, status: message.status, incarnation: message.incarnation }, now);
    // A dead member is believed only about this member, which may learn in this way that it is thought dead itself.
    const isCredible = this.#opinions.isLiving(from) || message.status === "left";
    for (const update of message.updates) {
      if (this.#isSilent) return;
      if (update.member === this.self) this.#hearOfSelf(update, now);
      else if (isCredible) this.#believe(update, now);
    }
    if (this.#isSilent) return;
    // One that has come back by itself, after a suspicion, must still learn that it was dead meanwhile.
    const wasDead = former?.status === "dead" ? { member: from, ...former } : undefined;
    this.#answer(message, now, wasDead);
    if (wasDead !== undefined && message.kind !== "ping" && this.#opinions.isLiving(from))
      this.#send(from, { kind: "gossip" }, { update: wasDead });
    this.#schedule(now);
  }

  /** Does what is due. Earlier than `dueMs` it does nothing. */
  advance(nowMs: number): void {
    const awakeMs = this.awakeMs(nowMs);
    // What is due within a microsecond is due: times are sums, and sums are rounded.
    const now = this.#dueMs - awakeMs < 0.001 ? Math.max(awakeMs, this.#dueMs) : awakeMs;
    while (this.#dueMs <= now && !this.#isSilent) {
      for (let relay = this.#relays.takeDue(now); relay !== undefined; relay = this.#relays.takeDue(now))
        this.#send(relay.asker, { kind: "nack", sequence: relay.sequence }, { about: relay.target });
      for (const probe of this.#probes.values()) {
        if (probe.timeoutMs <= now) this.#probeIndirectly(probe);
        if (probe.endMs <= now) this.#fail(probe, now);
      }
      if (this.#periodMs <= now) this.#beginPeriod(now);
      this.#judgeSuspects(now);
      if (this.#dissemination.dueMs <= now) this.#gossip(now);
      this.#schedule(now);
    }
  }

  /** Says whether the main thread of this member stands still. */
  setStalled(isStalled: boolean, nowMs: number): void {
    const status = isStalled ? "stalled" : "alive";
    if (this.#own.status === "left" || this.#own.status === status || this.#isSilent) return;
    const now = this.awakeMs(nowMs);
    this.#declare(status, this.#own.incarnation + 1, now);
    this.#schedule(now);
  }

  /** Says goodbye. Keep the detector running until `isDone`. */
  leave(nowMs: number): void {
    if (this.#own.status === "left" || this.#isSilent) return;
    const now = this.awakeMs(nowMs);
    this.#declare("left", this.#own.incarnation + 1, now);
    this.#suspicions.clear();
    this.#probes.clear();
    this.#gossip(now);
    this.#schedule(now);
  }

  /**
   * Takes over a new roster. Beliefs about its members stay, unless it names a later incarnation.
   *
   * @throws RangeError when it lacks this member
   */
  adopt(roster: Roster, nowMs: number): void {
    const own = roster.require(this.self);
    const now = this.awakeMs(nowMs);
    const former = this.#roster;
    this.#roster = roster;
    this.#opinions.adopt(roster);
    for (const { id } of former.members) if (roster.get(id) === undefined) this.#dissemination.forget(id);
    this.#suspicions.keep((id) => this.#opinions.of(id)?.status === "suspect");
    if ((own.incarnation ?? 0) > this.#own.incarnation)
      this.#declare(this.#own.status, own.incarnation ?? 0, now);
    this.#schedule(now);
  }

  #answer(message: Message, now: number, wasDead?: Update): void {
    switch (message.kind) {
      case "ping":
        this.#send(message.from, { kind: "ack", sequence: message.sequence }, { update: wasDead });
        return;
      case "ack":
        this.#onAck(message.sequence, now);
        return;
      case "nack": {
        const probe = this.#probes.get(message.sequence);
        if (probe !== undefined) probe.nacks += 1;
        return;
      }
      case "indirect-ping":
        if (this.#opinions.isLiving(message.from)) this.#relay(message, now);
        return;
    }
  }

  #onAck(sequence: number, now: number): void {
    if (this.#probes.delete(sequence)) {
      this.#health.improve();
      return;
    }
    this.#suspicions.onLastAnswer(sequence, now, this.self);
    const relay = this.#relays.take(sequence);
    if (relay !== undefined)
      this.#send(relay.asker, { kind: "ack", sequence: relay.sequence }, { about: relay.target });
  }

  #relay({ from, target, sequence }: IndirectPing, now: number): void {
    const member = this.#roster.get(target);
    if (member === undefined || target === this.self) return;
    const own = this.#nextSequence();
    if (this.#relays.add(own, { asker: from, sequence, target }, now))
      this.#send(target, { kind: "ping", sequence: own });
    else this.#counts.refusedRelays += 1;
  }

  #beginPeriod(now: number): void {
    const { periodMs, pingTimeoutMs } = this.#options;
    // From when it was due, else every period would be longer by how late the timer is.
    const startMs = Math.max(this.#periodMs, now - periodMs / 2);
    this.#periodMs = startMs + periodMs;
    this.#setIsolated(this.#isOutage(now));
    if (this.#own.status === "left") return;
    const place = this.#order.next(this.#roster.size, this.#isProbed);
    const target = place === undefined ? undefined : this.#roster.members[place]?.id;
    if (target !== undefined) {
      const sequence = this.#nextSequence();
      const { factor } = this.#health;
      const timeoutMs = startMs + pingTimeoutMs * factor;
      const endMs = startMs + periodMs * factor;
      this.#probes.set(sequence, { target, sequence, timeoutMs, endMs, asked: 0, nacks: 0 });
      this.#counts.probes += 1;
      this.#send(target, { kind: "ping", sequence });
    }
    this.#pingDead();
  }

  readonly #isProbed = (place: number): boolean => {
    const id = this.#roster.members[place]?.id;
    return id !== undefined && id !== this.self && this.#opinions.isLiving(id);
  };

  #probeIndirectly(probe: Probe): void {
    probe.timeoutMs = never;
    const { sequence, target } = probe;
    const others = this.#others(this.#options.indirectProbes, target);
    probe.asked = others.length;
    for (const other of others) this.#send(other, { kind: "indirect-ping", sequence, target });
    const second = this.#roster.get(target)?.addresses[1];
    if (second !== undefined) this.#send(target, { kind: "ping", sequence }, { address: second });
  }

  #fail({ target, sequence, asked, nacks }: Probe, now: number): void {
    this.#probes.delete(sequence);
    this.#counts.failedProbes += 1;
    // A relay answers in any case. If its answer does not arrive either, the fault may be here.
    this.#health.worsen(asked === 0 ? 1 : Math.max(0, asked - nacks));
    const opinion = this.#opinions.of(target);
    if (opinion === undefined || !isLiving(opinion.status) || this.#isOutage(now)) return;
    this.#counts.suspicions += 1;
    const { incarnation } = opinion;
    this.#believe({ member: target, status: "suspect", incarnation, accuser: this.self }, now);
  }

  #isOutage(now: number): boolean {
    return now - this.#heardMs > this.#options.outagePeriods * this.#options.periodMs;
  }

  #judgeSuspects(now: number): void {
    for (const [member, suspicion] of this.#suspicions.overdue(now)) {
      if (this.#isOutage(now)) {
        suspicion.restart(now, this.self);
      } else if (this.#options.lastChance && suspicion.lastChance === undefined) {
        const sequence = this.#nextSequence();
        suspicion.lastChance = { sequence, untilMs: now + this.#options.pingTimeoutMs * this.#health.factor };
        this.#send(member, { kind: "ping", sequence });
        // A second opinion: this member may have missed that the suspect has refuted the suspicion.
        for (const other of this.#others(1))
          this.#send(other, { kind: "indirect-ping", sequence, target: member });
      } else {
        this.#counts.deaths += 1;
        const incarnation = this.#opinions.of(member)?.incarnation ?? 0;
        this.#believe({ member, status: "dead", incarnation }, now);
      }
    }
  }

  /** Sends a few pings to the dead, in all about `pingsToDead` to each a period: an answer heals a parted network. */
  #pingDead(): void {
    const { dead, living } = this.#opinions;
    if (dead.size === 0 || !this.#options.rejoin) return;
    const chance = Math.min(0.2, (this.#options.pingsToDead * dead.size) / living);
    if (this.#ports.random() >= chance) return;
    const member = [...dead][Math.floor(this.#ports.random() * dead.size)];
    if (member !== undefined) this.#send(member, { kind: "ping", sequence: this.#nextSequence() });
  }

  #gossip(now: number): void {
    const fanOut =
      this.#own.status === "left" ? Math.max(3, this.#options.gossipFanOut) : this.#options.gossipFanOut;
    for (const other of this.#others(fanOut))
      if (this.#dissemination.hasNews) this.#send(other, { kind: "gossip" });
    this.#dissemination.planRound(now);
  }

  #hearOfSelf(update: Update, now: number): void {
    const { isExcluded, isWrong } = this.#own.hear(update);
    if (isExcluded) {
      const returns = this.#options.rejoin;
      this.#ports.onEvent({ type: "excluded", incarnation: update.incarnation, returns });
      this.#isSilent = !returns;
    }
    if (this.#isSilent || !isWrong) return;
    this.#counts.refutations += 1;
    this.#health.worsen();
    this.#declare(this.#own.status, update.incarnation + 1, now);
    this.#ports.onEvent({ type: "refuted", incarnation: this.#own.incarnation });
  }

  /** Announces a state of its own that overrides what others believe. */
  #declare(status: OwnStatus, incarnation: number, now: number): void {
    this.#own.status = status;
    this.#own.incarnation = incarnation;
    this.#dissemination.tell({ member: this.self, status, incarnation }, now);
  }

  #believe(update: Update, now: number): void {
    const { member, status, incarnation, accuser } = update;
    const believed = this.#opinions.of(member);
    if (believed === undefined || member === this.self) return;
    if (!isNews(update, believed)) {
      const isShared = status === "suspect" && incarnation === believed.incarnation;
      if (isShared && this.#suspicions.confirm(member, accuser ?? member))
        this.#dissemination.tell(update, now);
      return;
    }
    this.#suspicions.end(member);
    if (status === "suspect") this.#suspicions.begin(member, accuser ?? member, this.#opinions.living, now);
    this.#opinions.set(update);
    this.#dissemination.tell(update, now);
    if (status !== believed.status)
      this.#ports.onEvent({ type: "status", previous: believed.status, ...update });
  }

  #setIsolated(isIsolated: boolean): void {
    if (isIsolated === this.#isIsolated) return;
    this.#isIsolated = isIsolated;
    this.#ports.onEvent({ type: "isolated", isolated: isIsolated });
  }

  #send(to: MemberId, purpose: Purpose, { about, update, address }: Addition = {}): void {
    const member = this.#roster.get(to);
    if (member === undefined) return;
    const updates = this.#dissemination.updatesFor(to, about);
    if (update !== undefined) updates.push(update);
    this.#counts.sent += 1;
    const header = {
      from: this.self,
      to,
      incarnation: this.#own.incarnation,
      status: this.#own.status,
      updates,
    };
    this.#ports.send(address ?? member.addresses[0], { ...header, ...purpose });
  }

  #others(count: number, except?: MemberId): MemberId[] {
    const accepts = (id: MemberId) =>
      id !== this.self && id !== except && this.#opinions.isLiving(id) && !this.#suspicions.has(id);
    return pickMembers(this.#roster, count, this.#ports.random, accepts);
  }

  #nextSequence(): number {
    this.#sequence = (this.#sequence + 1) >>> 0;
    return this.#sequence;
  }

  #schedule(now: number): void {
    let dueMs = Math.min(this.#periodMs, this.#relays.dueMs);
    dueMs = Math.min(dueMs, this.#dissemination.dueMs, this.#suspicions.dueMs);
    for (const { timeoutMs, endMs } of this.#probes.values()) dueMs = Math.min(dueMs, timeoutMs, endMs);
    // A confirmed suspicion may end in the past, and to be late for that is no sleep.
    this.#dueMs = Math.max(dueMs, now);
  }
}
