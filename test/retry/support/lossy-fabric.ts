import { RpcError } from "../../../src/base/errors/rpc-error.ts";
import { usualLimits } from "../../../src/base/flow/engine-limits.test-support.ts";
import type { EngineLimits } from "../../../src/base/flow/engine-limits.ts";
import { SharedBudgets } from "../../../src/base/flow/peer-account.ts";
import { RequestCredits } from "../../../src/base/flow/request-credits.ts";
import { CallMetrics } from "../../../src/base/observe/call-metrics.ts";
import { newCounters } from "../../../src/base/observe/counters.ts";
import { DeadlineWheel } from "../../../src/base/time/deadline-wheel.ts";
import { FakeClock } from "../../../src/base/time/fake-clock.test-support.ts";
import { reconnectField } from "../../../src/connect/connect-options.ts";
import { Peer } from "../../../src/connect/peer.ts";
import { PeerConnection } from "../../../src/connect/peer-connection.ts";
import { sessionParts } from "../../../src/engine/session-parts.ts";
import { parseUrl } from "../../../src/fabric/libfabric/url.ts";
import { MemPort } from "../../../src/fabric/mem-port.ts";
import type { SendListener } from "../../../src/fabric/port.ts";
import { defaultLayout } from "../../../src/fabric/port.ts";
import type { Flushable } from "../../../src/fabric/progress.ts";
import { Quarantine } from "../../../src/memory/quarantine.ts";
import { SecurityMeter } from "../../../src/security/security-meter.ts";
import { Admission } from "../../../src/server/admission.ts";
import { defaultAdmission } from "../../../src/server/admission-options.ts";
import type { Implementation } from "../../../src/server/implement.ts";
import { ReplayCache } from "../../../src/server/replay-cache.ts";
import { Dispatchers, ServedServices } from "../../../src/server/served-services.ts";
import type { EngineServices } from "../../../src/session/connection/engine-services.ts";
import { SessionTable } from "../../../src/session/connection/session-table.ts";
import { Heartbeat } from "../../../src/session/liveness/heartbeat.ts";
import { alignFrame, messageHeaderBytes, noNonce, nonceOffset } from "../../../src/wire/message.ts";

/** What becomes of a message: it arrives, it is lost, or it is lost and the sessions at both ends with it. */
export type Fate = "arrives" | "lost" | "lost with its session";

/** Decides the fate of each message by the kinds of its frames. */
export type Fates = (kinds: readonly number[]) => Fate;

let names = 0;

/**
 * A mem port whose messages meet the fate that the test chooses. What is lost arrives as a stray: with the nonce of no
 * session.
 */
class LossyPort extends MemPort {
  fate: Fates = () => "arrives";
  onSessionLost: () => void = () => {};

  override send(address: number, slot: number, bytes: number, owner: SendListener): void {
    const view = this.slabView;
    const kinds: number[] = [];
    let at = slot + messageHeaderBytes;
    for (let left = view.getUint16(slot + 2, true); left > 0; left--) {
      kinds.push(view.getUint8(at));
      at += 16 + alignFrame(view.getUint32(at + 8, true));
    }
    const fate = this.fate(kinds);
    if (fate !== "arrives") view.setBigUint64(slot + nonceOffset, noNonce.value, true);
    if (fate === "lost with its session") this.onSessionLost();
    super.send(address, slot, bytes, owner);
  }
}

/** One engine's worth of sessions, on a clock and a loop that the test turns. */
export class Side {
  readonly port: LossyPort;
  readonly table: SessionTable;
  readonly host: EngineServices;
  readonly replays: ReplayCache;
  #queues: Flushable[] = [];

  constructor(
    clock: FakeClock,
    url: string,
    serve: readonly Implementation[],
    incarnation: bigint,
    limits: Partial<EngineLimits> = {},
  ) {
    const all = { ...usualLimits, ...limits };
    this.replays = new ReplayCache(clock, all);
    const wheel = new DeadlineWheel(clock);
    const served = new ServedServices(
      new Dispatchers({
        onHandlerError: () => {},
        replays: this.replays,
        admission: new Admission(clock, wheel, defaultAdmission),
        metrics: new CallMetrics(),
        middleware: [],
      }),
    );
    served.add("serve", serve);
    this.host = {
      clock,
      realClock: clock,
      wheel,
      gate: { requests: true, calls: true },
      counters: newCounters(),
      metrics: new CallMetrics(),
      limits: all,
      quarantine: new Quarantine(),
      goodbyes: new Set(),
      credits: new RequestCredits(all.maxRequestsInAll, all.maxRequests, all.maxSessions),
      clientMiddleware: [],
      security: undefined,
      securityMeter: new SecurityMeter(),
      budgets: new SharedBudgets(all),
      liveness: { heartbeatMs: 1000, maxStallMs: 0 },
      incarnation,
      served,
      builtins: [],
      progress: {
        wake: () => {},
        flushSoon: (queue) => this.#queues.push(queue),
        goOn: () => {},
      },
    };
    this.table = new SessionTable({
      services: this.host,
      // Its time stands still: nobody is asked, and nobody is lost.
      watch: new Heartbeat(new FakeClock(), 1000, () => {}),
      parts: sessionParts,
      onSessionEnded: () => {},
    });
    this.port = new LossyPort(parseUrl(url), defaultLayout);
  }

  /** Sends and takes what there is; whether there was anything. */
  turn(): boolean {
    const queues = this.#queues;
    this.#queues = [];
    for (const queue of queues) queue.flush();
    return this.port.progress(0, this.table) > 0 || queues.length > 0;
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

/**
 * A client and a server on one fake clock, over a fabric that loses messages, breaks sessions, and restarts the server.
 */
export class LossyPair {
  readonly clock = new FakeClock();
  readonly client: Side;
  readonly peer: Peer;
  readonly connection: PeerConnection;
  server: Side;
  readonly #url: string;
  readonly #serve: readonly Implementation[];
  readonly #limits: Partial<EngineLimits>;
  #breaking = false;
  #incarnation = 1n;

  constructor(serve: readonly Implementation[], limits: Partial<EngineLimits> = {}) {
    const name = `lossy-${++names}`;
    this.#url = `mem://${name}`;
    this.#serve = serve;
    this.#limits = limits;
    this.server = this.#newServer();
    this.client = new Side(this.clock, `mem://${name}-client`, [], 99n);
    const { port, table } = this.client;
    const connection = new PeerConnection(this.#url, this.client.host, {
      open: () =>
        table.connect({
          port,
          address: port.admit(Buffer.from(name)),
          replyTo: Buffer.from(`${name}-client`),
          peerName: name,
          served: this.client.host.served,
          answerMs: 1000,
          totalMs: 1000,
        }),
      reconnect: reconnectField.fallback,
    });
    this.connection = connection;
    this.peer = new Peer(connection);
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
