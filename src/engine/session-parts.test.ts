import { describe, expect, it } from "vitest";
import type { RpcError } from "../base/errors/rpc-error.ts";
import { decoded, expectFault, gone, id, open } from "../session/calls/scripted-session.test-support.ts";
import { FakeCall } from "../session/connection/fake-services.test-support.ts";
import type { Session } from "../session/connection/session.ts";
import type { SessionPart } from "../session/connection/session-part.ts";
import type { Teardown } from "../session/liveness/teardown.ts";
import { frameHeaderBytes, frameKind } from "../wire/frame.ts";
import { sessionParts } from "./session-parts.ts";

/** Kinds that no version of the protocol has. */
const note = 30;
const last = 31;

/** A kind of traffic that only this test knows: notes, one after the other, until the last. */
class Notes implements SessionPart {
  readonly taken: unknown[] = [];
  readonly told: string[] = [];
  reason: RpcError | undefined;
  released = 0;
  openWork = 0;
  readonly #session: Session;

  constructor(session: Session) {
    this.#session = session;
  }

  readonly frames: SessionPart["frames"] = {
    [note]: (at, bodyBytes) => void this.taken.push(this.#session.bodies.valueAt(at, bodyBytes)),
    [last]: (at) => {
      this.taken.push(this.#session.port.slabView.getUint32(at + frameHeaderBytes - 4, true));
      this.openWork--;
    },
  };

  send(value: unknown): void {
    if (!this.#session.hasOpenWork) this.#session.watch();
    this.openWork++;
    this.#session.outbox.value({ kind: note, method: 0, callId: 0, word: 0 }, value, () => {
      throw new Error("too long");
    });
  }

  onOpen(): void {
    this.told.push("open");
  }

  onDraining(): void {
    this.told.push("draining");
  }

  end(reason: RpcError, teardown: Teardown): void {
    this.reason = reason;
    teardown.addGrants([{ bytes: 1, memory: [], release: () => void this.released++ }]);
  }
}

const withNotes = () => {
  const all = open({}, {}, {}, [...sessionParts, (session) => new Notes(session)]);
  return { ...all, notes: all.session.part(Notes) };
};

describe("a part of a session", () => {
  it("that the list names takes frames of its own kinds, beside calls", () => {
    const all = withNotes();
    const call = new FakeCall();
    all.outgoing.request(call, 0, 500, undefined);
    all.receive(
      { kind: note, body: "one" },
      { kind: frameKind.response, callId: id(1, 0), body: "answer" },
      { kind: note, body: ["two"] },
    );
    expect([all.notes.taken, call.values]).toEqual([["one", ["two"]], ["answer"]]);
    expect(all.notes.told).toEqual(["open"]);
    expect([all.session.state, all.host.counters.malformed]).toEqual(["open", 0]);
  });

  it("sends through the session's outbox, and what it has open counts", () => {
    const all = withNotes();
    expect(all.session.hasOpenWork).toBe(false);
    all.notes.send({ n: 1 });
    all.session.flush();
    expect(all.port.frames.map(({ kind }) => kind)).toEqual([note]);
    expect(decoded(all.port.frames[0])).toEqual({ n: 1 });
    expect([all.session.hasOpenWork, all.host.watched]).toEqual([true, [all.session]]);
    // A call of a session that is watched begins no other watch.
    for (let calls = 0; calls < 2; calls++) all.outgoing.request(new FakeCall(), 0, 500, undefined);
    expect(all.host.watched).toEqual([all.session]);
    const answers = [0, 1].map((slot) => ({ kind: frameKind.response, callId: id(1, slot) }));
    all.receive({ kind: last, word: 7 }, ...answers);
    expect([all.notes.taken, all.session.hasOpenWork]).toEqual([[7], false]);
  });

  it("hears of the peer's draining and of the end, and its memory is released", () => {
    const all = withNotes();
    all.receive({ kind: frameKind.ping, method: 1 });
    expect(all.notes.told).toContain("draining");
    all.session.end(gone, { certain: true });
    expect([all.notes.reason, all.notes.released]).toEqual([gone, 1]);
  });

  it("without which a kind of frame is a fault of the protocol", () => {
    const all = open();
    all.receive({ kind: note, body: "one" });
    expectFault(all, `frame kind ${note} is unknown`);
  });

  it("cannot take what another takes", () => {
    const twice = [...sessionParts, ...sessionParts];
    expect(() => open({}, {}, {}, twice)).toThrow("no two parts of a session can take frame kind 4");
  });
});
