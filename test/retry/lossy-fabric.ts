import { Quarantine } from "../../src/bulk/quarantine.ts";
import { DeadlineWheel } from "../../src/call/deadline-wheel.ts";
import { FakeClock } from "../../src/call/fake-clock.test-support.ts";
import { Peer } from "../../src/engine/peer.ts";
import { resolveReconnectOptions } from "../../src/engine/reconnect.ts";
import { RpcError } from "../../src/errors/rpc-error.ts";
import { MemPort } from "../../src/fabric/mem-port.ts";
import type { SendOwner } from "../../src/fabric/port.ts";
import { defaultLayout } from "../../src/fabric/port-layout.ts";
import { parseUrl } from "../../src/fabric/url.ts";
import { CallMetrics } from "../../src/observe/call-metrics.ts";
import { newCounters } from "../../src/observe/counters.ts";
import { Admission } from "../../src/server/admission.ts";
import { defaultAdmission } from "../../src/server/admission-options.ts";
import { dispatchTable } from "../../src/server/dispatcher.ts";
import type { Implementation } from "../../src/server/implement.ts";
import { ReplayCache } from "../../src/server/replay-cache.ts";
import { ByteBudget } from "../../src/session/byte-budget.ts";
import { defaultLimits, type SessionLimits } from "../../src/session/limits.ts";
import { RequestCredits } from "../../src/session/request-credits.ts";
import type { Session } from "../../src/session/session.ts";
import type { SessionHost } from "../../src/session/session-host.ts";
import { SessionTable } from "../../src/session/session-table.ts";
import { alignFrame } from "../../src/wire/message.ts";

/** What becomes of a message: it arrives, it is lost, or it is lost and the sessions at both ends with it. */
export type Fate = "arrives" | "lost" | "lost with its session";

/** Decides the fate of each message by the kinds of its frames. */
export type Fates = (kinds: readonly number[]) => Fate;

let names = 0;

/** A mem port whose messages meet the fate that the test chooses. What is lost arrives as a stray: with the nonce of no session. */
class LossyPort extends MemPort {
  fate: Fates = () => "arrives";
  onSessionLost: () => void = () => {};

  override send(address: number, slot: number, bytes: number, owner: SendOwner): void {
    const view = this.slabView;
    const kinds: number[] = [];
    let at = slot + 16;
    for (let left = view.getUint16(slot + 2, true); left > 0; left--) {
      kinds.push(view.getUint8(at));
      at += 16 + alignFrame(view.getUint32(at + 8, true));
    }
    const fate = this.fate(kinds);
    if (fate !== "arrives") view.setUint32(slot + 12, view.getUint32(slot + 12, true) ^ 0xffff_ffff, true);
    if (fate === "lost with its session") this.onSessionLost();
    super.send(address, slot, bytes, owner);
  }
}

/** One engine's worth of sessions, on a clock and a loop that the test turns. */
export class Side {
  readonly port: LossyPort;
  readonly table: SessionTable;
  readonly host: SessionHost;
  readonly replays: ReplayCache;
  #dirty = new Set<Session>();

  constructor(
    clock: FakeClock,
    url: string,
    serve: readonly Implementation[],
    incarnation: bigint,
    limits: Partial<SessionLimits> = {},
  ) {
    const all = { ...defaultLimits, ...limits };
    this.replays = new ReplayCache(clock, all);
    const wheel = new DeadlineWheel(clock);
    this.host = {
      clock,
      wheel,
      intake: { requests: true, calls: true },
      counters: newCounters(),
      metrics: new CallMetrics(),
      limits: all,
      quarantine: new Quarantine(),
      partings: new Set(),
      credits: new RequestCredits(all.maxRequestsInAll, all.maxRequests),
      pullBudget: new ByteBudget(all.maxPullBytes),
      offerBudget: new ByteBudget(all.maxOfferBytes),
      liveness: { heartbeatMs: 1000, maxStallMs: 0 },
      incarnation,
      ...dispatchTable(serve, () => {}, this.replays, new Admission(clock, wheel, defaultAdmission)),
      builtins: [],
      lanesFor: () => [],
      kick: () => {},
      markDirty: (session) => this.#dirty.add(session),
      watch: () => {},
      probe: () => {},
      ponged: () => {},
      heardNow: () => 0,
      arrivedMs: () => clock.now(),
      onSessionEnded: (session) => this.table.remove(session),
    };
    this.table = new SessionTable(this.host);
    this.port = new LossyPort(parseUrl(url), defaultLayout);
  }

  /** Sends and takes what there is; whether there was anything. */
  turn(): boolean {
    const dirty = this.#dirty;
    this.#dirty = new Set();
    for (const session of dirty) session.flush();
    return this.port.progress(0, this.table) > 0 || dirty.size > 0;
  }

  /** Ends every session without a word, as a broken connection does. */
  breakSessions(): void {
    const reason = new RpcError({ code: "unavailable", message: "the connection broke", origin: "fabric" });
    for (const session of [...this.table]) session.end(reason, { quiet: true, certain: true });
  }

  close(): void {
    const reason = new RpcError({ code: "unavailable", message: "the process is gone", origin: "local" });
    this.breakSessions();
    this.replays.close(reason);
    this.port.close();
  }
}

/** A client and a server on one fake clock, over a fabric that loses messages, breaks sessions, and restarts the server. */
export class LossyPair {
  readonly clock = new FakeClock();
  readonly client: Side;
  readonly peer: Peer;
  server: Side;
  readonly #url: string;
  readonly #serve: readonly Implementation[];
  readonly #limits: Partial<SessionLimits>;
  #breaking = false;
  #incarnation = 1n;

  constructor(serve: readonly Implementation[], limits: Partial<SessionLimits> = {}) {
    const name = `lossy-${++names}`;
    this.#url = `mem://${name}`;
    this.#serve = serve;
    this.#limits = limits;
    this.server = this.#newServer();
    this.client = new Side(this.clock, `mem://${name}-client`, [], 99n);
    const { port, table } = this.client;
    this.peer = new Peer(
      this.#url,
      this.client.host,
      async () => {
        const session = await table.connect(
          port,
          port.admit(Buffer.from(name)),
          Buffer.from(`${name}-client`),
          name,
          1000,
        );
        return session;
      },
      () => {},
      resolveReconnectOptions(),
    );
    this.client.port.onSessionLost = () => {
      this.#breaking = true;
    };
  }

  #newServer(): Side {
    const side = new Side(this.clock, this.#url, this.#serve, this.#incarnation++, this.#limits);
    side.port.onSessionLost = () => {
      this.#breaking = true;
    };
    return side;
  }

  /** What is sent from now on meets these fates. */
  fates(requests: Fates, answers: Fates): void {
    this.client.port.fate = requests;
    this.server.port.fate = answers;
  }

  /** Another process takes the server's place. */
  restart(): void {
    const { fate } = this.server.port;
    this.server.close();
    this.client.breakSessions();
    this.server = this.#newServer();
    this.server.port.fate = fate;
  }

  breakSessions(): void {
    this.server.breakSessions();
    this.client.breakSessions();
  }

  /** Turns the loop until `done`; time passes only when nothing else happens. */
  async run(done: () => boolean, stepMs = 4): Promise<void> {
    while (!done()) {
      const moved = [this.client.turn(), this.server.turn()];
      if (this.#breaking) {
        this.#breaking = false;
        this.breakSessions();
      }
      await new Promise(setImmediate);
      if (!moved.includes(true)) this.clock.advance(stepMs);
    }
  }

  close(): void {
    this.peer.close();
    this.client.close();
    this.server.close();
  }
}
