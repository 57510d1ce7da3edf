import { type AnyService, RpcError, service } from "cinnabar/standard";
import { makeView, type View } from "../view/view.ts";
import { Collectives } from "./collectives.ts";
import type { Envelope, OnFailure, Reply } from "./envelope.ts";
import { member } from "./group-of.test-support.ts";
import type { MaybePromise } from "./handlers.ts";
import {
  type CollectiveHost,
  type GroupImplementation,
  implementCollectives,
  type ServedCollective,
} from "./handlers.ts";
import type { Members, Reached } from "./members.ts";
import { collective } from "./method.ts";
import { CollectiveError, type CollectiveResult } from "./result.ts";

const group = "every-order";
const Work = service("every-order.v1", { run: collective() });

/** Which group is played, and what may go wrong there. */
export interface Scenario {
  readonly ranks: number;
  readonly onFailure: Exclude<OnFailure, "fail">;
  /** Only messages to and of these ranks are lost, and only these ranks are killed. All others answer at once. */
  readonly faulty: readonly number[];
  readonly mostFaults: number;
}

/** One schedule: what happened, and what came of it. */
export interface Played {
  readonly log: readonly string[];
  readonly result: CollectiveResult<unknown>;
  /** How often the handler of each rank ran, also after the root had its result. */
  readonly runs: readonly number[];
}

/**
 * Where a message is.
 *
 *   sent       on its way; its receiver may get it although its sender believes it lost
 *   delivered  its receiver works on it
 *   answered   the reply is on its way back
 *   gone       it has no further effect
 */
type Place = "sent" | "delivered" | "answered" | "gone";

interface Message {
  readonly name: string;
  readonly from: number;
  readonly to: number;
  readonly envelope: Envelope;
  readonly settle: (outcome: Reply | RpcError) => void;
  /** Fires at the receiver when the sender stops waiting. */
  readonly end: AbortController;
  place: Place;
  reply: Reply | undefined;
  /** Whether the sender waits for the outcome. */
  isAwaited: boolean;
}

interface Step {
  readonly what: string;
  /** The ranks that it happens to. */
  readonly of: readonly number[];
  readonly isFault: boolean;
  run(): void;
}

/**
 * Plays a schedule for each state that a scenario can reach. The schedules have every order in which messages arrive,
 * are answered and are lost, and processes are killed, with a bounded number of faults. The collectives are the real
 * ones. Messages between them wait until the schedule delivers them.
 *
 * A process depends only on its own events. So a state is the history of each process, and two orders that differ only
 * between processes lead to one state.
 */
export async function* everySchedule(scenario: Scenario): AsyncGenerator<Played> {
  const seen = new Set<string>();
  let prefix: number[] = [];
  for (;;) {
    const choices: { readonly taken: number; readonly of: number }[] = [];
    const played = await new Play(scenario, (of, state) => {
      if (choices.length >= prefix.length) {
        if (seen.has(state)) return undefined;
        seen.add(state);
      }
      const taken = prefix[choices.length] ?? 0;
      choices.push({ taken, of });
      return taken;
    }).run();
    if (played !== undefined) yield played;
    while (choices.length > 0 && isLast(choices.at(-1))) choices.pop();
    const next = choices.pop();
    if (next === undefined) return;
    prefix = [...choices.map(({ taken }) => taken), next.taken + 1];
  }
}

const isLast = (choice: { readonly taken: number; readonly of: number } | undefined): boolean =>
  choice !== undefined && choice.taken === choice.of - 1;

class Play {
  readonly #scenario: Scenario;
  readonly #choose: (of: number, state: string) => number | undefined;
  readonly #view: View;
  readonly #implementations: GroupImplementation[];
  readonly #collectives: Collectives[];
  readonly #runs: number[];
  readonly #dead = new Set<number>();
  readonly #messages: Message[] = [];
  readonly #log: string[] = [];
  /** What has happened to each rank. */
  readonly #histories: string[];
  #faults = 0;

  constructor(scenario: Scenario, choose: (of: number, state: string) => number | undefined) {
    const ranks = Array.from({ length: scenario.ranks }, (_, rank) => rank);
    this.#scenario = scenario;
    this.#choose = choose;
    this.#view = makeView(
      group,
      1,
      ranks.map((rank) => member(rank, [`mem://${rank}`])),
    );
    this.#runs = ranks.map(() => 0);
    this.#implementations = ranks.map((rank) =>
      implementCollectives(Work, {
        run: () => {
          this.#runs[rank] = (this.#runs[rank] as number) + 1;
        },
      }),
    );
    this.#collectives = ranks.map(
      (rank) => new Collectives(this.#membersOf(rank), [this.#implementations[rank] as GroupImplementation]),
    );
    this.#histories = ranks.map(() => "");
  }

  /** Undefined where `choose` ends the schedule. */
  async run(): Promise<Played | undefined> {
    let result: CollectiveResult<unknown> | undefined;
    const options = {
      tree: { kind: "kary", ratio: 2 },
      onFailure: this.#scenario.onFailure,
      timeoutMs: 1_000_000,
    } as const;
    const [root] = this.#collectives as [Collectives];
    root
      .all(Work)
      .run(options)
      .catch((error: unknown) => {
        if (error instanceof CollectiveError) return error.result;
        throw error;
      })
      .then((came) => {
        result = came;
      });
    for (;;) {
      await settled();
      if (result !== undefined) break;
      const steps = this.#steps();
      if (steps.length === 0) throw new Error(`the call hangs:\n${this.#log.join("\n")}`);
      const choice = this.#choose(steps.length, this.#histories.join("|"));
      if (choice === undefined) return this.#close();
      this.#take(steps[choice] as Step);
    }
    // What is still on its way arrives, as late as it may.
    for (;;) {
      const late = this.#messages.find(({ place, to }) => place === "sent" && !this.#dead.has(to));
      if (late === undefined) break;
      this.#log.push(`${late.name} arrives late`);
      this.#deliver(late);
      await settled();
    }
    this.#close();
    return { log: this.#log, result, runs: this.#runs };
  }

  #close(): undefined {
    for (const each of this.#collectives) each.close();
  }

  #take({ what, of, isFault, run }: Step): void {
    this.#log.push(what);
    for (const rank of of) this.#histories[rank] += `${what}. `;
    if (isFault) this.#faults++;
    run();
  }

  #steps(): Step[] {
    const mayFail = this.#faults < this.#scenario.mostFaults;
    const steps: Step[] = [];
    for (const message of this.#messages) {
      const { name, from, to, place, isAwaited } = message;
      const isDead = this.#dead.has(to);
      const step = (what: string, of: readonly number[], isFault: boolean, run: () => void) =>
        steps.push({ what: `${name} ${what}`, of, isFault, run });
      if (place === "sent" && !isDead) step("arrives", [to], false, () => this.#deliver(message));
      if (!isAwaited) continue;
      if (place === "answered") step("is answered", [from], false, () => this.#answer(message));
      if (!isDead && !mayFail) continue;
      const of = place === "delivered" && !isDead ? [from, to] : [from];
      if (place === "sent") step("finds nobody", of, !isDead, () => this.#lose(message, true));
      step("is lost", of, !isDead, () => this.#lose(message, false));
    }
    for (const rank of mayFail ? this.#scenario.faulty : []) {
      if (this.#dead.has(rank)) continue;
      const heard = this.#messages.filter(({ from, place }) => from === rank && place === "delivered");
      const of = [rank, ...heard.map(({ to }) => to)];
      steps.push({ what: `rank ${rank} is killed`, of, isFault: true, run: () => this.#kill(rank) });
    }
    return steps;
  }

  /** What it has sent may arrive. Nothing waits for the answers. Members that work on them learn of the lost parent. */
  #kill(rank: number): void {
    this.#dead.add(rank);
    for (const message of this.#messages) {
      if (message.from !== rank) continue;
      message.isAwaited = false;
      if (message.place === "delivered") message.end.abort(lost(false));
    }
  }

  async #send(from: number, to: number, envelope: Envelope, signal: AbortSignal): Promise<Reply> {
    if (!this.#scenario.faulty.includes(to)) return this.#serve(to, envelope, signal);
    if (this.#dead.has(from)) return new Promise(() => undefined);
    return new Promise((resolve, reject) => {
      const message: Message = {
        ...{ name: `${from} to ${to}`, from, to, envelope, end: new AbortController() },
        ...{ place: "sent", reply: undefined, isAwaited: true },
        settle: (outcome) => {
          if (!message.isAwaited) return;
          message.isAwaited = false;
          if (outcome instanceof RpcError) reject(outcome);
          else resolve(outcome);
        },
      };
      this.#messages.push(message);
      signal.addEventListener("abort", () => {
        message.settle(signal.reason as RpcError);
        if (message.place === "delivered") message.end.abort(signal.reason);
      });
    });
  }

  #deliver(message: Message): void {
    const { to, envelope, end } = message;
    message.place = "delivered";
    const reply = this.#serve(to, envelope, end.signal);
    Promise.resolve(reply).then((came) => {
      // A process that was killed answers nothing more.
      if (message.place !== "delivered" || this.#dead.has(to)) return;
      message.reply = came;
      message.place = "answered";
    });
  }

  #serve(to: number, envelope: Envelope, signal: AbortSignal): MaybePromise<Reply> {
    const { collectives, hosts } = this.#implementations[to] as GroupImplementation;
    const call = { signal, timeLeftMs: 1_000_000 } as Parameters<CollectiveHost["serve"]>[2];
    const served = collectives.get("run") as ServedCollective;
    return (hosts.get(group) as CollectiveHost).serve(served, envelope, call, undefined);
  }

  #answer(message: Message): void {
    message.place = "gone";
    message.settle(message.reply as Reply);
  }

  #lose(message: Message, isCertain: boolean): void {
    // What was sent may arrive nevertheless, unless that is certain.
    if (message.place !== "sent" || isCertain) message.place = "gone";
    if (!this.#dead.has(message.to)) message.end.abort(lost(false));
    message.settle(lost(isCertain));
  }

  #membersOf(rank: number): Members {
    return {
      name: group,
      engine: { pool: undefined, state: "open" } as unknown as Members["engine"],
      self: this.#view.members[rank],
      view: this.#view,
      reach: (to) => this.#reached(rank, to.rank),
      on: () => () => undefined,
    };
  }

  #reached(from: number, to: number): Reached {
    const run = (envelope: Envelope, { signal }: { readonly signal: AbortSignal }) =>
      this.#send(from, to, envelope, signal);
    return { client: (_: AnyService) => ({ run }) } as unknown as Reached;
  }
}

const lost = (isCertain: boolean): RpcError =>
  new RpcError({
    ...{ code: "unavailable", message: isCertain ? "nobody listens there" : "the connection was lost" },
    ...(isCertain && { notExecuted: true }),
  });

/**
 * All reactions of promises have run: one turn of the event loop later, after more turns than any chain of them is
 * long.
 */
async function settled(): Promise<void> {
  for (let i = 0; i < 40; i++) await undefined;
}
