import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { defaultWindow } from "../../base/flow/in-flight-window.ts";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { localIdentity } from "../../security/identity.ts";
import { sealedTagBytes } from "../../security/sealing/sealed-message.ts";
import { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import type { TlsExchangeListener } from "../../security/tls-exchange.ts";
import { frameKind } from "../../wire/frame.ts";
import { packTerms, type SecureHello, withTerms } from "../../wire/hello.ts";
import { Nonce } from "../../wire/message.ts";
import { MessageTurns } from "../channel/inbox.ts";
import type { ShareOfTime } from "../opening/share-of-time.ts";
import { FakePort, takeApart } from "./fake-port.test-support.ts";
import {
  FakeServices,
  type FrameSpec,
  messageOf,
  packedGreeting,
  peerGreeting,
} from "./fake-services.test-support.ts";
import type { ConnectTerms } from "./opening.ts";
import { Session } from "./session.ts";

const secret = () => Buffer.alloc(32, 7);
const gone = new RpcError({ code: "unavailable", message: "gone", origin: "local" });
const cookie = new Uint8Array(16).fill(5);
const terms = packTerms({ session: 3, nonce: peerGreeting.nonce, messageBytes: 4096, suite: 1 });
const hello: SecureHello = {
  versions: [2, 2],
  session: 3,
  nonce: peerGreeting.nonce,
  address: Uint8Array.of(9),
  messageBytes: 4096,
  suites: [1],
  flight: Uint8Array.of(1),
};

/** TLS with a scripted outcome. */
class FakeTls {
  listener: TlsExchangeListener | undefined;
  readonly taken: number[][] = [];
  onTaken = () => {};
  isClosed = false;

  connect(_name: string, listener: TlsExchangeListener) {
    this.listener = listener;
    return {
      take: (bytes: Uint8Array) => {
        this.taken.push([...bytes]);
        this.onTaken();
      },
      exportSecret: secret,
      close: () => {
        this.isClosed = true;
      },
    };
  }

  accept(listener: TlsExchangeListener) {
    return this.connect("", listener);
  }
}

function setUp() {
  const host = new FakeServices();
  host.security = { handshakes: { maxOpen: 4, timeoutMs: 5000, share: 1 }, bulk: "sealed" } as never;
  const port = new FakePort(8);
  const names = { address: 4, index: 2, nonce: new Nonce(0x2222n), peerName: "the peer" };
  const session = new Session(host.terms(), port, names, defaultWindow);
  const tls = new FakeTls();
  const endpoint = tls as unknown as TlsEndpoint;
  const failed: RpcError[] = [];
  const keep = (error: RpcError) => void failed.push(error);
  const times = { replyTo: Uint8Array.of(8), answerMs: 1000, totalMs: 3000 };
  const sealed: ConnectTerms = { ...times, tls: { endpoint, name: "x", suites: ["aes-256-gcm"] } };
  const steps: (() => void)[] = [];
  const time = {
    do(_host: string, step: () => void) {
      steps.push(step);
      return () => void steps.splice(0);
    },
  } as unknown as ShareOfTime;
  /** Strangers have their turn. */
  const runSteps = () => {
    for (const step of steps.splice(0)) step();
  };
  const receive = (...frames: FrameSpec[]) => {
    const bytes = messageOf(2, 0x2222n, frames);
    session.receive(port.receive(bytes), bytes.byteLength);
  };
  const prove = () => tls.listener?.onResult({ identity: localIdentity, chain: [] });
  /** Brings the session to a step, in each way in which it may come there. */
  const enter = {
    "hello, connector": () => {
      session.opening.connect(sealed).catch(keep);
      tls.listener?.onFlight(Buffer.of(1));
    },
    "tls, connector": () => {
      enter["hello, connector"]();
      receive({ kind: frameKind.secure, word: withTerms, body: Buffer.concat([terms, Buffer.of(2)]) });
    },
    "tls, acceptor": () => {
      session.opening
        .secure({ endpoint, hello, message: Uint8Array.of(1), suite: "aes-256-gcm", time })
        .catch(keep);
      runSteps();
    },
    "welcome, plain": () => void session.opening.connect(times).catch(keep),
    "welcome, sealed": () => {
      enter["tls, connector"]();
      prove();
    },
    "greeting, acceptor": () => {
      enter["tls, acceptor"]();
      prove();
      session.opening.welcome().catch(keep);
    },
  };
  return { host, port, session, tls, failed, receive, prove, enter, runSteps };
}

/** The frames of sealed messages, as the connector opens them. */
function opened(port: FakePort): number[] {
  const peer = SessionCiphers.from(secret(), "connector", "aes-256-gcm");
  const kinds = port.sealed.flatMap((bytes) => {
    const slab = Uint8Array.from(bytes);
    const view = new DataView(slab.buffer);
    expect(peer.opener.open({ slab, slabView: view }, 0, bytes.byteLength)).toBe(0);
    const plain = slab.subarray(0, bytes.byteLength - sealedTagBytes);
    plain[0] = 0xcb;
    view.setUint32(4, plain.byteLength, true);
    return takeApart(4, plain).frames.map(({ kind }) => kind);
  });
  peer.close();
  return kinds;
}

/** The table of the steps in the documentation: what each takes, and its last word. */
const page = readFileSync(new URL("../../../docs/design/sessions.md", import.meta.url), "utf8");
const namesIn = (cell: string | undefined) => [...(cell ?? "").matchAll(/`(\w+)`/g)].map(([, name]) => name);
const table = new Map(
  page
    .split("\n")
    .filter((line) => /^\| (hello|tls|welcome|greeting) \| (connector|acceptor|both)/.test(line))
    .map((line) => line.split("|").map((cell) => cell.trim()))
    .map(([, step, , , takes, lastWord]) => [step, { takes: namesIn(takes), lastWord: namesIn(lastWord) }]),
);

type Way = keyof ReturnType<typeof setUp>["enter"];
const ways = Object.keys(setUp().enter) as Way[];
const rowOf = (way: Way) => {
  const row = table.get(way.split(",")[0]);
  if (row === undefined) expect.fail(`docs/design/sessions.md has no row for ${way}`);
  return row;
};

afterEach(() => expect(addonIfThere()?.aeads()).toBe(0));

describe("each step of an opening", () => {
  it.each(ways)("takes the frames that its row has, and ends for every other: %s", (way) => {
    const taken = Object.entries(frameKind).flatMap(([name, kind]) => {
      const all = setUp();
      all.enter[way]();
      all.receive({ kind });
      const reason = all.host.ended[0]?.reason?.message ?? "";
      all.session.end(gone, { quiet: true });
      return reason.includes(`frame kind ${kind} arrived`) ? [] : [name];
    });
    expect(taken.sort()).toEqual([...rowOf(way).takes].sort());
  });

  it.each(ways)("ends with the last word that its row has: %s", (way) => {
    const { enter, port, session, tls } = setUp();
    enter[way]();
    const before = port.frames.length;
    session.end(gone);
    const kinds = [...port.frames.slice(before).map(({ kind }) => kind), ...opened(port)];
    const { welcome } = frameKind;
    const said = kinds.filter((kind) => kind !== welcome);
    expect(said).toEqual(rowOf(way).lastWord.map((name) => frameKind[name as keyof typeof frameKind]));
    expect([session.state, tls.isClosed]).toEqual(["ended", way !== "welcome, plain"]);
  });

  it.each(ways)("ends in silence when its time is over: %s", (way) => {
    const { enter, port, host, session } = setUp();
    enter[way]();
    const before = port.frames.length + port.sealed.length;
    host.clock.advance(5000);
    expect([session.state, port.frames.length + port.sealed.length]).toEqual(["ended", before]);
    expect(host.clock.timers).toBe(0);
  });
});

describe("the opening of a sealed session", () => {
  it("says hello again with the cookie, and takes messages that are numbered anew", () => {
    const { enter, port, session, receive } = setUp();
    enter["hello, connector"]();
    const turns = new MessageTurns(1);
    const take = (frame: FrameSpec) => {
      const bytes = messageOf(2, 0x2222n, [frame], 1);
      const offset = port.receive(bytes);
      const clearBytes = session.inbox.open(offset, bytes.byteLength, turns);
      if (clearBytes > 0) session.receive(offset, clearBytes);
    };
    const retry = { kind: frameKind.retry, body: cookie };
    take(retry);
    expect(port.frames.map(({ kind }) => kind)).toEqual([frameKind.hello, frameKind.hello]);
    // The acceptor that answers has kept nothing of the one that wanted a cookie.
    take({ kind: frameKind.secure, word: withTerms, body: terms });
    expect(session.state).toBe("opening");
    receive(retry);
    expect(session.state).toBe("ended");
  });

  it("has one time for the first answer and one for the rest", () => {
    const { enter, host, failed, session, receive } = setUp();
    enter["hello, connector"]();
    host.clock.advance(900);
    receive({ kind: frameKind.retry, body: cookie });
    host.clock.advance(2000);
    expect(session.state).toBe("opening");
    host.clock.advance(100);
    expect(session.state).toBe("ended");
    expect(failed).toEqual([]);
  });

  it("sends in the clear until the first sealed message has come, and is refused in the clear until then", () => {
    const { enter, port, tls, session, host } = setUp();
    enter["welcome, sealed"]();
    // TLS proves the acceptor before its own last flight is written.
    tls.listener?.onFlight(Buffer.of(3));
    expect(port.sent.at(-1)?.frames).toMatchObject([{ kind: frameKind.secure, word: 0 }]);
    expect([port.sealed, session.ciphers === undefined]).toEqual([[], false]);
    const clear = (frame: FrameSpec) => {
      const bytes = messageOf(2, 0x2222n, [frame]);
      return session.takeClearRefusal(port.receive(bytes), bytes.byteLength);
    };
    for (const kind of [frameKind.welcome, frameKind.goodbye, frameKind.secure])
      expect(clear({ kind, body: {} })).toBe(false);
    expect(session.state).toBe("opening");
    expect(clear({ kind: frameKind.refuse, word: 16, body: { m: "no" } })).toBe(true);
    expect(host.ended[0]?.reason).toMatchObject({ code: "unauthenticated" });
  });

  it("lets TLS go and seals what it sends with the welcome", () => {
    const { enter, port, tls, session, receive } = setUp();
    enter["welcome, sealed"]();
    receive({ kind: frameKind.services });
    expect(session.state).toBe("ended");
    const other = setUp();
    other.enter["welcome, sealed"]();
    expect(other.tls.isClosed).toBe(false);
    other.receive({ kind: frameKind.welcome, body: {} });
    expect(other.tls.isClosed).toBe(true);
    expect([tls.isClosed, port.sealed]).toEqual([true, []]);
  });

  describe.each(["connector", "acceptor"] as const)("at the %s", (side) => {
    const isConnector = side === "connector";
    const flight = isConnector ? Buffer.concat([terms, Buffer.of(2)]) : Buffer.of(2);
    const last = { kind: frameKind.secure, word: isConnector ? withTerms : 0, body: flight };
    const behind = { kind: isConnector ? frameKind.welcome : frameKind.services, body: packedGreeting() };

    it("takes no frame behind the proof, in its message or in one that was deferred", () => {
      for (const isDeferred of [false, true]) {
        const { enter, tls, prove, receive, runSteps, session, host } = setUp();
        enter[isConnector ? "hello, connector" : "tls, acceptor"]();
        tls.onTaken = prove;
        if (isDeferred) session.inbox.deferred.push(messageOf(2, 0x2222n, [behind]));
        receive(last, ...(isDeferred ? [] : [behind]));
        runSteps();
        expect([session.state, session.remote, tls.isClosed]).toEqual(["ended", undefined, true]);
        // An acceptor takes the rest of the message before strangers have their turn.
        const text =
          isConnector || isDeferred
            ? "frames in the clear came behind the proof"
            : "before the session was sealed";
        expect(host.ended[0]?.reason?.message).toContain(text);
      }
    });

    it("takes the proof in the last frame of a message", () => {
      const { enter, tls, prove, receive, runSteps, session } = setUp();
      enter[isConnector ? "hello, connector" : "tls, acceptor"]();
      tls.onTaken = prove;
      receive(last);
      runSteps();
      expect([session.state, session.identity]).toEqual(["opening", localIdentity]);
      session.end(gone, { quiet: true });
    });
  });

  it.each(["refusal", "flags", "too long", "empty"] as const)(
    "ends for a stranger's %s, and counts it",
    (what) => {
      const { enter, host, receive, session } = setUp();
      enter["tls, acceptor"]();
      if (what === "refusal") receive({ kind: frameKind.refuse, word: 16, body: { m: "no" } });
      if (what === "flags") receive({ kind: frameKind.secure, flags: 1, body: Uint8Array.of(1) });
      if (what === "empty") receive({ kind: frameKind.secure });
      const flight = new Uint8Array(4000);
      for (let i = 0; what === "too long" && i < 17; i++) receive({ kind: frameKind.secure, body: flight });
      expect(session.state).toBe("ended");
      expect(host.securityMeter.stats([], 0).refusals).toEqual({ protocol: 1 });
    },
  );

  it("is no refusal when a stranger's connection ends", () => {
    const { enter, host, session } = setUp();
    enter["tls, acceptor"]();
    session.onSendFailed(125);
    expect([session.state, host.securityMeter.stats([], 0).refusals]).toEqual(["ended", {}]);
  });
});
