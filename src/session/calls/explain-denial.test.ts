import { describe, expect, it, vi } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { RefusedTransfer } from "../../transfer/control/peer-link.ts";
import { frameKind } from "../../wire/frame.ts";
import { FakeCall } from "../connection/fake-services.test-support.ts";
import { id, open } from "./scripted-session.test-support.ts";

const refused: RefusedTransfer = { key: 7n, needed: "read", offset: 0, bytes: 10 };
/** The first slot of built-in methods: the peer grants 8 requests. */
const request = id(1, 8);

/** A session with one call in flight that asks why a transfer was refused. */
function asking() {
  const all = open();
  const call = new FakeCall();
  all.outgoing.request(call, 0, 10_000, 1);
  const explained = all.exchange.explain(refused).then((reason) => reason?.code);
  all.session.flush();
  return { ...all, call, explained };
}

const broke = { code: "unavailable", message: expect.stringContaining("broke when a transfer was refused") };

describe("the request to explain a denied transfer", () => {
  it.each([
    [5, "permission_denied"],
    [7, "permission_denied"],
    [11, "out_of_range"],
    [15, "data_loss"],
    [12, undefined],
  ])("is answered, with code %i, before the session ends, as its connection broke", async (word, reason) => {
    const all = asking();
    all.receive({ kind: frameKind.error, callId: request, word, body: { m: "why" } });
    expect(await all.explained).toBe(reason);
    await vi.waitFor(() => expect(all.session.state).toBe("ended"), { timeout: 20_000 });
    expect(all.call.failures[0]).toMatchObject(broke);
  });

  it("has no answer where a message of this side was lost with the connection; the end says what broke it", async () => {
    const all = asking();
    all.port.complete(1, 5);
    expect(all.session.state).toBe("ended");
    expect(all.call.failures[0]).toMatchObject(broke);
    expect(await all.explained).toBeUndefined();
  });

  it("ends the session before the transfer where the owner does not answer, as it may be gone", async () => {
    const all = asking();
    const states: string[] = [];
    const heard = all.explained.then((code) => states.push(`${all.session.state} ${code}`));
    all.host.clock.advance(5100);
    all.session.flush();
    await heard;
    expect(states).toEqual(["ended undefined"]);
    expect(all.call.failures[0]).toMatchObject(broke);
  });

  it("is not the reason of sends that fail without it", () => {
    const all = open();
    const call = new FakeCall();
    all.outgoing.request(call, 0, 10_000, 1);
    all.session.flush();
    all.port.complete(1, 5);
    expect(call.failures[0]).toBeInstanceOf(RpcError);
    expect(call.failures[0]?.message).toContain("sending failed");
  });
});
